"""`penstock keys`: API keys from the terminal, for whoever can reach the database.

A new key goes to standard output alone, so that a script can take it; what people should know goes to standard error.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Annotated, TypeVar

import typer

from penstock import settings as all_settings
from penstock.access import keys as verbs
from penstock.access import store
from penstock.access.domain import MOST_GRACE_SECONDS, MOST_ID, IssuedKey, Key, NewKey, Scope
from penstock.cli.actor import actor
from penstock.kernel.db import Db, Tx
from penstock.kernel.migrations import migrate
from penstock.settings import Settings
from penstock.wiring import open_database

keys = typer.Typer(name="keys", help="Make, list, rotate and revoke API keys.", no_args_is_help=True)

T = TypeVar("T")
PAGE = 100
HEADINGS = ("ID", "STATE", "SCOPE", "KEY", "USER", "PROJECT", "EXPIRES", "LAST USED", "NAME")
MOST_CHARACTERS = 255


def _word(value: str | None) -> str | None:
    """What people may call things: one line that a database and a terminal can show."""
    if value is not None and not (value.strip() and value.isprintable() and len(value) <= MOST_CHARACTERS):
        raise typer.BadParameter(f"it needs 1 to {MOST_CHARACTERS} printable characters")
    return value


KeyId = Annotated[str, typer.Argument(help="The key's id, as `penstock keys list` shows it.", callback=_word)]


@keys.command("create")
def create(
    *,
    name: Annotated[str, typer.Option(help="What the key is for; records show it.", callback=_word)],
    scope: Annotated[Scope, typer.Option(help="read = query and pull, write = also push, admin = everything.")],
    project: Annotated[
        str | None, typer.Option(help="Bind it to one project: it opens nothing else.", callback=_word)
    ] = None,
    user_id: Annotated[int | None, typer.Option(help="Whose it is; a new user by default.", min=1, max=MOST_ID)] = None,
    merchant_id: Annotated[
        int | None, typer.Option(help="The merchant whose things it sees.", min=1, max=MOST_ID)
    ] = None,
    role: Annotated[str | None, typer.Option(help="A role, for rooms that ask for one.", callback=_word)] = None,
    days: Annotated[float | None, typer.Option(help="It expires after so many days.", min=0.001, max=36500)] = None,
) -> None:
    """Make a key and print it. It is shown this once."""

    async def make(tx: Tx) -> IssuedKey:
        expires_at = tx.now + timedelta(days=days) if days is not None else None
        new = NewKey(
            name=name,
            scope=scope,
            project=project,
            user_id=user_id,
            merchant_id=merchant_id,
            role=role,
            expires_at=expires_at,
        )
        return await verbs.create(tx, new, by=actor())

    _show_once(_run(make))


@keys.command("list")
def list_keys(
    limit: Annotated[int, typer.Option(help="How many at the most.", min=1, max=10_000)] = PAGE,
) -> None:
    """Show the keys, newest first, without their secrets."""

    async def read(tx: Tx) -> list[tuple[str, ...]]:
        return [_row(key, tx.now) for key in await store.list_keys(tx, limit=limit)]

    rows = [HEADINGS, *_run(read)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@keys.command("rotate")
def rotate(
    key_id: KeyId,
    grace_seconds: Annotated[
        float, typer.Option(help="How long the old key goes on.", min=0, max=MOST_GRACE_SECONDS)
    ] = 0,
) -> None:
    """Put a new key in the place of an old one and print it. It is shown this once."""

    async def turn(tx: Tx) -> IssuedKey:
        return await verbs.rotate(tx, key_id, by=actor(), grace_seconds=grace_seconds)

    _show_once(_run(turn))


@keys.command("revoke")
def revoke(key_id: KeyId) -> None:
    """End a key. Servers that are running know it within two seconds."""

    async def end(tx: Tx) -> Key:
        return await verbs.revoke(tx, key_id, by=actor())

    typer.echo(f"revoked: {_run(end).id}", err=True)


def _run(verb: Callable[[Tx], Awaitable[T]]) -> T:
    return asyncio.run(_with_database(all_settings.load(), verb))


async def _with_database(settings: Settings, verb: Callable[[Tx], Awaitable[T]]) -> T:
    db: Db = open_database(settings)
    try:
        if settings.embedded:
            await migrate(db)
        async with db.tx(actor=actor()) as tx:
            return await verb(tx)
    finally:
        await db.close()


def _show_once(issued: IssuedKey) -> None:
    key = issued.key
    typer.echo(
        f"{key.name} ({key.scope}, user {key.user_id}) has the id {key.id}. The key is shown this once:", err=True
    )
    typer.echo(issued.secret)


def _row(key: Key, now: datetime) -> tuple[str, ...]:
    times = (key.expires_at, key.last_used_at)
    shown = [f"{time:%Y-%m-%d %H:%M}" if time is not None else "-" for time in times]
    whose = (key.prefix, str(key.user_id), key.project or "-")
    return (key.id, str(key.state(now)), str(key.scope), *whose, *shown, key.name)
