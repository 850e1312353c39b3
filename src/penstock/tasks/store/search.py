"""Searching in names: case-insensitive in every script, the same on both databases."""

from sqlalchemy import Column, ColumnElement

ESCAPE = "\\"


def folded(*texts: str | None) -> str:
    """Texts as they are kept to be searched."""
    return "\n".join(text.casefold() for text in texts if text)


def contains(column: Column[str], search: str) -> ColumnElement[bool]:
    """Whether a kept text contains what is looked for; `%` and `_` mean themselves."""
    return column.contains(search.casefold(), autoescape=True, escape=ESCAPE)
