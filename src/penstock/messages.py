"""Every message that may pass from one room to another: the map of the house.

A message is a frozen dataclass derived from `penstock.kernel.message.Message`. `wiring.ROUTES` says which handler hears
it, and which of them may leave the house by webhook. Of the fields of those, `user_id` and `merchant_id` say whose it
is: only their webhooks, and admins', get it.
"""

from dataclasses import dataclass

from penstock.kernel.message import Message


@dataclass(frozen=True, kw_only=True)
class WebhookPing(Message):
    """Someone wants to see whether a webhook works; it goes to that webhook alone."""

    webhook_id: str
