"""`penstock keys`: API keys from the terminal, for anyone who can reach the database.

Only the new key goes to standard output, so that a script can read it; everything else goes to standard error.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.access.domain import MAX_GRACE_SECONDS, MAX_ID, Scope
from penstock.cli.options import DataDir

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.access.domain import IssuedKey, Key
    from penstock.kernel.db import Tx

app = typer.Typer(rich_markup_mode=None)

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
    data_dir: DataDir = None,
) -> None:
    """Create a key and print it. It is shown only once."""
    from datetime import timedelta

    from penstock.access import keys
    from penstock.access.domain import NewKey
    from penstock.cli.actor import cli_actor
    from penstock.cli.database import create_database, load_settings, run_in_tx

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

    settings = load_settings(data_dir)
    create_database(settings)  # the first key may come before the first start
    _print_secret(run_in_tx(create_key, settings))


@app.command("list")
def list_keys(
    limit: Annotated[int, typer.Option(help="The most keys to show.", min=1, max=10_000)] = PAGE,
    data_dir: DataDir = None,
) -> None:
    """List the keys, newest first, without their secrets."""
    from penstock.access import store
    from penstock.cli.database import load_settings, run_in_tx
    from penstock.cli.text import align

    async def read(tx: "Tx") -> list[tuple[str, ...]]:
        return [_row(key, tx.now) for key in await store.list_keys(tx, limit=limit)]

    for line in align([HEADINGS, *run_in_tx(read, load_settings(data_dir))]):
        typer.echo(line)


@app.command()
def rotate(
    key_id: KeyId,
    grace_seconds: Annotated[
        float, typer.Option(help="How long the old key stays valid.", min=0, max=MAX_GRACE_SECONDS)
    ] = 0,
    data_dir: DataDir = None,
) -> None:
    """Replace a key with a new one and print it. It is shown only once."""
    from penstock.access import keys
    from penstock.cli.actor import cli_actor
    from penstock.cli.database import load_settings, run_in_tx

    async def rotate_key(tx: "Tx") -> "IssuedKey":
        return await keys.rotate(tx, key_id, by=cli_actor(), grace_seconds=grace_seconds)

    _print_secret(run_in_tx(rotate_key, load_settings(data_dir)))


@app.command()
def revoke(key_id: KeyId, data_dir: DataDir = None) -> None:
    """Revoke a key. Running servers refuse it within two seconds."""
    from penstock.access import keys
    from penstock.cli.actor import cli_actor
    from penstock.cli.database import load_settings, run_in_tx

    async def revoke_key(tx: "Tx") -> "Key":
        return await keys.revoke(tx, key_id, by=cli_actor())

    typer.echo(f"revoked: {run_in_tx(revoke_key, load_settings(data_dir)).id}", err=True)


def _print_secret(issued: "IssuedKey") -> None:
    key = issued.key
    typer.echo(
        f"{key.name} ({key.scope}, user {key.user_id}) has the id {key.id}. The key is shown only once:", err=True
    )
    typer.echo(issued.secret)


def _row(key: "Key", now: "datetime") -> tuple[str, ...]:
    from penstock.cli.text import show_time

    times = (show_time(key.expires_at), show_time(key.last_used_at))
    owner = (key.prefix, str(key.user_id), key.project or "-")
    return (key.id, str(key.state(now)), str(key.scope), *owner, *times, key.name)
