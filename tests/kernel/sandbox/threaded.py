"""A module that must not be preloaded: it starts a thread when it is imported."""

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
