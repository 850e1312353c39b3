"""Redis: run state, rates, wake-up and streams. `link.py` is the connection that all of them share."""
