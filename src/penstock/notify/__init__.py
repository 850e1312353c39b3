"""Notify: what happened goes out to those who asked to be told.

A webhook says where to post which messages. `fan_out.py` turns a message of the outbox into one delivery per webhook,
`deliver.py` posts it, signed, from a job of its own that is tried again with growing waits, and every try is kept in
the delivery log. `subscribe.py` makes, changes and removes webhooks.
"""
