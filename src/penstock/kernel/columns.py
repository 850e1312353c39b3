"""Column types that mean the same on both databases."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import JSON, DateTime, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


def _identity(value: Any) -> Any:
    return value


class UtcTime(TypeDecorator[datetime]):
    """A UTC timestamp with microseconds. Naive datetimes are refused, because their meaning depends on the machine.

    SQLite stores no time zone, so it is removed on the way in and added on the way out; PostgreSQL's driver keeps it.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a naive datetime."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value if dialect.name == "postgresql" else value.astimezone(UTC).replace(tzinfo=None)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Add the zone to SQLite's values; no processor on PostgreSQL, where a claim reads many timestamps."""
        if dialect.name == "postgresql":
            return None
        plain: Callable[[Any], Any] = super().result_processor(dialect, coltype) or _identity
        return lambda value: None if value is None else plain(value).replace(tzinfo=UTC)


# Ids are compared byte by byte: faster than a language collation, and the same order on every server.
Id = String().with_variant(Text(collation="C"), "postgresql")
# None is SQL NULL, never the JSON text "null": otherwise bulk and plain inserts would write different values.
Json: JSON = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
# Keeps the order of keys, which JSONB does not. It cannot be queried or compared.
OrderedJson = JSON(none_as_null=True)

# The cast for JSON text that a SELECT writes into such a column.
JsonText = Text().with_variant(JSONB(), "postgresql")


def to_json(value: object) -> str:
    """Encode as JSON with the fastest encoder: a bulk insert writes a hundred thousand values."""
    return msgspec.json.encode(value).decode()
