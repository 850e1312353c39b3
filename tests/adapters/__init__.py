"""What only one adapter does, beyond the suite of its Protocol in tests/conformance."""
