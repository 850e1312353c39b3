"""HTTP: how errors look on the wire, and what holds for every request."""
