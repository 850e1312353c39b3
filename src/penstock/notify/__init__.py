"""Notify: webhooks.

A webhook names a URL and the messages to post to it. `worker.py` has the outbox sink that turns a message into one
delivery per subscribed webhook, the job handlers and the cleanup of old deliveries. `deliver.py` posts a delivery,
signed (`signing.py`), from a job of its own; a failed attempt enqueues the next one (`delivery_jobs.py`), and the
delivery log shows the last attempt. `webhooks.py` creates, changes and removes webhooks. The HTTP client is passed in
as a `WebhookClient`: `adapters/guarded_http.py`, which only calls public addresses.
"""
