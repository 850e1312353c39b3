"""A JSON object as Python has it. In a file of its own: what runs in a sandbox needs no database for it."""

from typing import Any

Plain = dict[str, Any]
