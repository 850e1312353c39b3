"""Column types that mean the same on both databases."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import JSON, DateTime, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


def _as_it_is(value: Any) -> Any:
    return value


class UtcTime(TypeDecorator[datetime]):
    """A moment in UTC with microseconds. Times without a zone are refused: they mean something else on every machine.

    SQLite drops the zone, so it is taken off on the way in and put back. PostgreSQL's driver gives it back by itself.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a time without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value if dialect.name == "postgresql" else value.astimezone(UTC).replace(tzinfo=None)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Give SQLite's times their zone back; no processor at all on PostgreSQL, where a claim reads many of them."""
        if dialect.name == "postgresql":
            return None
        plain: Callable[[Any], Any] = super().result_processor(dialect, coltype) or _as_it_is
        return lambda value: None if value is None else plain(value).replace(tzinfo=UTC)


# Ids are compared byte by byte: quicker than by a language's rules, and the same order on every server.
Id = String().with_variant(Text(collation="C"), "postgresql")
# None is SQL's NULL, never the JSON text "null": otherwise a bulk insert and a plain one would write different things.
Json: JSON = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
# Keeps the order of names, which JSONB does not. It cannot be looked into, nor compared.
OrderedJson = JSON(none_as_null=True)

# What a text that is JSON is cast to where it is written into such a column by a SELECT.
JsonText = Text().with_variant(JSONB(), "postgresql")


def to_json(value: object) -> str:
    """JSON text, by the quickest encoder: a bulk insert writes a hundred thousand of them."""
    return msgspec.json.encode(value).decode()
