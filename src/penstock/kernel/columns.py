"""Column types that mean the same on both databases."""

from datetime import UTC, datetime

import msgspec
from sqlalchemy import JSON, DateTime, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


class _ZonelessTime(TypeDecorator[datetime]):
    """A UTC timestamp on SQLite, which stores no time zone: it is removed on the way in and added on the way out."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Remove the zone."""
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Add the zone."""
        return None if value is None else value.replace(tzinfo=UTC)


class UtcTime(TypeDecorator[datetime]):
    """A UTC timestamp with microseconds. Naive datetimes are refused, because their meaning depends on the machine.

    PostgreSQL's driver keeps the zone, so results need no processing there: a claim reads many timestamps.
    """

    impl = DateTime(timezone=True).with_variant(_ZonelessTime(), "sqlite")
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Refuse a naive datetime."""
        if value is not None and value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value


# Ids are compared byte by byte: faster than a language collation, and the same order on every server.
Id = String().with_variant(Text(collation="C"), "postgresql")
# None is SQL NULL, never the JSON text "null": otherwise bulk and plain inserts would write different values.
Json: JSON = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
# Keeps the order of keys, which JSONB does not. It cannot be queried or compared.
OrderedJson = JSON(none_as_null=True)

# The cast for JSON text that a SELECT writes into such a column.
JsonText = Text().with_variant(JSONB(), "postgresql")


def to_json(value: object) -> str:
    """Encode as JSON with the fastest encoder: a bulk insert writes a hundred thousand values. NaN becomes null."""
    return msgspec.json.encode(value).decode()
