"""`penstock users`: console users from the terminal, for anyone who can reach the database.

Only a generated password goes to standard output, so that a script can read it; everything else goes to standard error.
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.access.domain import Scope
from penstock.cli.options import DataDir, Limit

if TYPE_CHECKING:
    from penstock.access.domain import User
    from penstock.kernel.db import Tx

app = typer.Typer(rich_markup_mode=None)

HEADINGS = ("ID", "SCOPE", "USER", "CREATED", "LAST LOGIN", "NAME")
MAX_CHARACTERS = 255


def _check_name(value: str) -> str:
    """Names are one printable line, so that databases and terminals can show them."""
    if not (value.strip() and value.isprintable() and len(value) <= MAX_CHARACTERS):
        raise typer.BadParameter(f"expected 1 to {MAX_CHARACTERS} printable characters")
    return value


Name = Annotated[str, typer.Argument(help="The name that the user logs in with.", callback=_check_name)]
FromStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input; by default one is generated.")
]


@app.command()
def add(
    name: Name,
    scope: Annotated[Scope, typer.Option(help="read: query. write: also push. admin: everything.")] = Scope.READ,
    password_stdin: FromStdin = False,
    data_dir: DataDir = None,
) -> None:
    """Add a user and print the password, unless you gave it."""
    from penstock.access import users
    from penstock.cli.actor import cli_actor
    from penstock.cli.database import create_database, load_settings, run_in_tx

    password, hashed = _new_password(from_stdin=password_stdin)

    async def add_user(tx: "Tx") -> "User":
        return await users.add(tx, name, hashed, scope=scope, by=cli_actor())

    settings = load_settings(data_dir)
    create_database(settings)  # the first user may come before the first start
    user = run_in_tx(add_user, settings)
    typer.echo(f"added: {user.username} ({user.scope}, user {user.user_id})", err=True)
    _print_password(password, from_stdin=password_stdin)


@app.command("list")
def list_users(limit: Limit = 100, data_dir: DataDir = None) -> None:
    """List the users, newest first."""
    from penstock.access import store
    from penstock.cli.database import load_settings, run_in_tx
    from penstock.cli.text import align, show_time

    async def read(tx: "Tx") -> list[tuple[str, ...]]:
        return [
            (
                user.id,
                user.scope,
                str(user.user_id),
                *map(show_time, (user.created_at, user.last_login_at)),
                user.username,
            )
            for user in await store.list_users(tx, limit=limit)
        ]

    for line in align([HEADINGS, *run_in_tx(read, load_settings(data_dir))]):
        typer.echo(line)


@app.command("reset-password")
def reset_password(name: Name, password_stdin: FromStdin = False, data_dir: DataDir = None) -> None:
    """Set a new password and print it, unless you gave it. Ends the logins of the user and unlocks the name."""
    from penstock.access import users
    from penstock.cli.actor import cli_actor
    from penstock.cli.database import load_settings, run_in_tx

    password, hashed = _new_password(from_stdin=password_stdin)

    async def reset(tx: "Tx") -> "User":
        return await users.reset_password(tx, await users.find_by_name(tx, name), hashed, by=cli_actor())

    user = run_in_tx(reset, load_settings(data_dir))
    typer.echo(f"password reset: {user.username}", err=True)
    _print_password(password, from_stdin=password_stdin)


@app.command()
def remove(name: Name, data_dir: DataDir = None) -> None:
    """Remove a user and end their logins. The last admin cannot be removed."""
    from penstock.access import users
    from penstock.cli.actor import cli_actor
    from penstock.cli.database import load_settings, run_in_tx

    async def remove_user(tx: "Tx") -> None:
        await users.remove(tx, await users.find_by_name(tx, name), by=cli_actor())

    run_in_tx(remove_user, load_settings(data_dir))
    typer.echo(f"removed: {name}", err=True)


def _new_password(*, from_stdin: bool) -> tuple[str, str]:
    """A password and its hash."""
    import asyncio

    from penstock.access.passwords import Passwords
    from penstock.access.users import MIN_PASSWORD, generate_password

    password = sys.stdin.readline().rstrip("\r\n") if from_stdin else generate_password()
    if len(password) < MIN_PASSWORD:
        raise typer.BadParameter(f"expected at least {MIN_PASSWORD} characters", param_hint="--password-stdin")
    return password, asyncio.run(Passwords().hash(password))


def _print_password(password: str, *, from_stdin: bool) -> None:
    if not from_stdin:
        typer.echo("The password is shown only once:", err=True)
        typer.echo(password)
