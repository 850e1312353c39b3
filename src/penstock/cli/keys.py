"""`penstock keys`: API keys from the terminal, for anyone who can reach the database.

Only the new key goes to standard output, so that a script can read it; everything else goes to standard error.
"""

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from penstock.access.domain import MAX_GRACE_SECONDS, MAX_ID, Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from penstock.access.domain import IssuedKey, Key
    from penstock.kernel.db import Tx

app = typer.Typer(rich_markup_mode=None)

T = TypeVar("T")
PAGE = 100
HEADINGS = ("ID", "STATE", "SCOPE", "KEY", "USER", "PROJECT", "EXPIRES", "LAST USED", "NAME")
MAX_CHARACTERS = 255


def _check_name(value: str | None) -> str | None:
    """Names are one printable line, so that databases and terminals can show them."""
    if value is not None and not (value.strip() and value.isprintable() and len(value) <= MAX_CHARACTERS):
        raise typer.BadParameter(f"expected 1 to {MAX_CHARACTERS} printable characters")
    return value


KeyId = Annotated[str, typer.Argument(help="The key's id, from `penstock keys list`.", callback=_check_name)]


@app.command()
def create(
    *,
    name: Annotated[str, typer.Option(help="What the key is for; the audit log shows it.", callback=_check_name)],
    scope: Annotated[Scope, typer.Option(help="read: query and pull. write: also push. admin: everything.")],
    project: Annotated[
        str | None, typer.Option(help="Bind the key to one project: it opens no other.", callback=_check_name)
    ] = None,
    user_id: Annotated[
        int | None, typer.Option(help="The user it belongs to; a new user by default.", min=1, max=MAX_ID)
    ] = None,
    merchant_id: Annotated[
        int | None, typer.Option(help="The merchant whose records it sees.", min=1, max=MAX_ID)
    ] = None,
    role: Annotated[
        str | None, typer.Option(help="A role, for modules that require one.", callback=_check_name)
    ] = None,
    days: Annotated[float | None, typer.Option(help="Expire after this many days.", min=0.001, max=36500)] = None,
) -> None:
    """Create a key and print it. It is shown only once."""
    from datetime import timedelta

    from penstock.access import keys
    from penstock.access.domain import NewKey
    from penstock.cli.actor import cli_actor

    async def create_key(tx: "Tx") -> "IssuedKey":
        new = NewKey(
            name=name,
            scope=scope,
            project=project,
            user_id=user_id,
            merchant_id=merchant_id,
            role=role,
            expires_at=tx.now + timedelta(days=days) if days is not None else None,
        )
        return await keys.create(tx, new, by=cli_actor())

    _print_secret(_run_in_tx(create_key))


@app.command("list")
def list_keys(
    limit: Annotated[int, typer.Option(help="The most keys to show.", min=1, max=10_000)] = PAGE,
) -> None:
    """List the keys, newest first, without their secrets."""
    from penstock.access import store

    async def read(tx: "Tx") -> list[tuple[str, ...]]:
        return [_row(key, tx.now) for key in await store.list_keys(tx, limit=limit)]

    rows = [HEADINGS, *_run_in_tx(read)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@app.command()
def rotate(
    key_id: KeyId,
    grace_seconds: Annotated[
        float, typer.Option(help="How long the old key stays valid.", min=0, max=MAX_GRACE_SECONDS)
    ] = 0,
) -> None:
    """Replace a key with a new one and print it. It is shown only once."""
    from penstock.access import keys
    from penstock.cli.actor import cli_actor

    async def rotate_key(tx: "Tx") -> "IssuedKey":
        return await keys.rotate(tx, key_id, by=cli_actor(), grace_seconds=grace_seconds)

    _print_secret(_run_in_tx(rotate_key))


@app.command()
def revoke(key_id: KeyId) -> None:
    """Revoke a key. Running servers refuse it within two seconds."""
    from penstock.access import keys
    from penstock.cli.actor import cli_actor

    async def revoke_key(tx: "Tx") -> "Key":
        return await keys.revoke(tx, key_id, by=cli_actor())

    typer.echo(f"revoked: {_run_in_tx(revoke_key).id}", err=True)


def _run_in_tx(action: "Callable[[Tx], Awaitable[T]]") -> T:
    import asyncio

    from penstock import settings as all_settings
    from penstock.cli.actor import cli_actor
    from penstock.kernel.migrations import migrate
    from penstock.wiring import open_database

    async def run() -> T:
        settings = all_settings.load()
        db = open_database(settings)
        try:
            if settings.embedded:
                await migrate(db)
            async with db.tx(actor=cli_actor()) as tx:
                return await action(tx)
        finally:
            await db.close()

    return asyncio.run(run())


def _print_secret(issued: "IssuedKey") -> None:
    key = issued.key
    typer.echo(
        f"{key.name} ({key.scope}, user {key.user_id}) has the id {key.id}. The key is shown only once:", err=True
    )
    typer.echo(issued.secret)


def _row(key: "Key", now: "datetime") -> tuple[str, ...]:
    times = [f"{time:%Y-%m-%d %H:%M}" if time is not None else "-" for time in (key.expires_at, key.last_used_at)]
    owner = (key.prefix, str(key.user_id), key.project or "-")
    return (key.id, str(key.state(now)), str(key.scope), *owner, *times, key.name)
