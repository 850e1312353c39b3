"""The type of a decoded JSON object. In its own file, because sandboxed code must not import the database for it."""

from typing import Any

JsonObject = dict[str, Any]
