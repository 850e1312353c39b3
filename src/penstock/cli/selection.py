"""What the commands of operators share: which things they select, bulk changes in batches, and how they print."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

import msgspec
import typer

from penstock.cli.actor import cli_actor
from penstock.cli.text import align, parse_moment, printable, show_time
from penstock.kernel.db import Db, Tx

NOW = "0s"  # where the filter of a bulk change ends: what fails again meanwhile is left alone


class Window(TypedDict):
    """The times of a filter."""

    since: datetime | None
    until: datetime | None


def window(since: str | None, until: str | None, now: datetime) -> Window:
    """The times that the options name."""
    begin, end = (None if text is None else parse_moment(text, now=now) for text in (since, until))
    return Window(since=begin, until=end)


def check_selection(ids: Sequence[str] | None, filters: Sequence[object], *, everything: bool) -> None:
    """Refuse a bulk change without a filter, and ids together with filters."""
    filtered = everything or any(value is not None for value in filters)
    if ids and filtered:
        raise typer.BadParameter("give either ids or filters, not both")
    if not ids and not filtered:
        raise typer.BadParameter("give ids, at least one filter, or --all")


async def repeat_bulk(db: Db, change_some: Callable[[Tx], Awaitable[int]], *, batch: int) -> int:
    """Change batch after batch, each in its own transaction, until one is not full; returns how many were changed."""
    total = 0
    while True:
        async with db.tx(actor=cli_actor()) as tx:
            changed = await change_some(tx)
        total += changed
        if changed < batch:
            return total


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, nothing: str) -> None:
    """Print rows under their headings, or that there are none."""
    if not rows:
        typer.echo(nothing, err=True)
        return
    for line in align([headings, *rows]):
        typer.echo(line)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print one field per line."""
    for name, value in fields.items():
        typer.echo(f"{name}: {_text(value)}")


def print_json(value: object) -> None:
    """Print a value as indented JSON; times have the format of the API."""
    typer.echo(msgspec.json.format(msgspec.json.encode(_plain(value)), indent=2))


def _text(value: object) -> str:
    if value is None or isinstance(value, datetime):
        return show_time(value)
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else printable(value)


def _plain(value: object) -> object:
    """Dataclasses as objects and times as text, all the way down."""
    if isinstance(value, datetime):
        return show_time(value)
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__ if name != "token"}
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
