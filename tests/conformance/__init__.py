"""One suite per Protocol. Every implementation passes it, and joins with one line in its parameters."""
