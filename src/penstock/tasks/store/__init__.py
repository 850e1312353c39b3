"""Every statement of the room, by noun. `tables.py` declares; the others read and write."""
