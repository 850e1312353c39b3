"""Redis: run state, rate limits, the wake-up notifier and streams. `client.py` is the connection they share."""
