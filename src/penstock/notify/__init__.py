"""Notify: what happened goes out to those who asked to be told.

A webhook says where to post which messages. `fan_out.py` turns a message of the outbox into one delivery per webhook,
`deliver.py` posts it, signed (`signing.py`), from a job of its own; a try that fails writes the job of the next one
(`tries.py`), and every try is kept in the delivery log. `subscribe.py` makes, changes and removes webhooks, `resend.py`
sends a delivery again, and `forget.py` deletes what is old. The client that posts comes from outside, as a `Poster`:
`adapters/guarded_http.py`, which reaches public addresses only.
"""
