"""Text search in names, ids and custom titles: case-insensitive in every script, the same on both databases."""

from sqlalchemy import Column, ColumnElement

ESCAPE = "\\"


def folded(*texts: str | None) -> str:
    """The case-folded text that is stored for search."""
    return "\n".join(text.casefold() for text in texts if text)


def contains(column: Column[str], search: str) -> ColumnElement[bool]:
    """Whether a stored text contains the search term; `%` and `_` are literal."""
    return column.contains(search.casefold(), autoescape=True, escape=ESCAPE)
