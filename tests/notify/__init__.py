"""Webhooks, from a message that is sent to a receiver that has it."""
