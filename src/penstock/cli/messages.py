"""`penstock messages`: dead letters of the outbox, for anyone who can reach the database."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import All, AsJson, DataDir, Limit, Since, Until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kernel.db import Db, Tx
    from penstock.kernel.outbox import DeadLetter

app = typer.Typer(rich_markup_mode=None)

BATCH = 1000  # messages that are sent again in one transaction
HEADINGS = ("ID", "CHANNEL", "ATTEMPTS", "DIED", "ERROR")

MessageId = Annotated[str, typer.Argument(metavar="MESSAGE", help="Its id, from `penstock messages list`.")]
Channel = Annotated[str | None, typer.Option(help="Only messages of this class, such as EtlTaskEnded.")]
ErrorText = Annotated[str | None, typer.Option(help="Only those whose error contains this text.")]


@app.command("list")
def list_messages(
    *,
    channel: Channel = None,
    error: ErrorText = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """List dead letters, newest first: messages whose delivery failed for good."""
    from penstock.cli.database import load_settings, run_in_tx
    from penstock.cli.selection import print_json, print_table, window
    from penstock.cli.text import printable, shorten, show_time
    from penstock.kernel.outbox import DeadLetterFilter, list_dead_letters

    async def read(tx: "Tx") -> "Sequence[DeadLetter]":
        chosen = DeadLetterFilter(channel=channel, error=error, **window(since, until, tx.now))
        return await list_dead_letters(tx, chosen, limit=limit)

    found = run_in_tx(read, load_settings(data_dir))
    if as_json:
        print_json(found)
        return
    rows = [
        (letter.id, printable(letter.channel), str(letter.attempts), show_time(letter.died_at), shorten(letter.error))
        for letter in found
    ]
    print_table(HEADINGS, rows, nothing="no dead letters")


@app.command()
def show(message_id: MessageId, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Show a dead letter with its payload and its error."""
    from dataclasses import asdict

    from penstock.cli.database import load_settings, run_in_tx
    from penstock.cli.selection import print_fields, print_json
    from penstock.kernel.outbox import get_dead_letter

    async def read(tx: "Tx") -> "DeadLetter":
        return await get_dead_letter(tx, message_id)

    letter = asdict(run_in_tx(read, load_settings(data_dir)))
    if as_json:
        print_json(letter)
    else:
        print_fields(letter)


@app.command()
def resend(
    message_ids: Annotated[list[str] | None, typer.Argument(metavar="MESSAGE", help="The ids.")] = None,
    *,
    channel: Channel = None,
    error: ErrorText = None,
    since: Since = None,
    until: Until = None,
    everything: All = False,
    data_dir: DataDir = None,
) -> None:
    """Send dead letters again, by id or all that match the filters, with their attempts reset."""
    from penstock.access import audit
    from penstock.cli.actor import cli_actor
    from penstock.cli.database import load_settings, run_with_db
    from penstock.cli.selection import NOW, check_selection, repeat_bulk, window
    from penstock.kernel import outbox
    from penstock.kernel.outbox import DeadLetterFilter, resend_dead_letters

    check_selection(message_ids, [channel, error, since, until], everything=everything)

    async def resend_these(db: "Db") -> int:
        for message_id in message_ids or ():
            async with db.tx(actor=cli_actor()) as tx:
                await outbox.resend(tx, message_id)
                await audit.record(tx, cli_actor(), "message.resend", f"message:{message_id}")
        return len(message_ids or ())

    async def resend_matching(db: "Db") -> int:
        chosen = DeadLetterFilter(channel=channel, error=error, **window(since, until or NOW, db.clock.now()))

        async def resend_some(tx: "Tx") -> int:
            resent = await resend_dead_letters(tx, chosen, limit=BATCH)
            await audit.record(tx, cli_actor(), "message.resend_many", "messages", count=len(resent), **chosen.shown())
            return len(resent)

        return await repeat_bulk(db, resend_some, batch=BATCH)

    count = run_with_db(resend_these if message_ids else resend_matching, load_settings(data_dir))
    typer.echo(f"{count} messages will be sent again" if count != 1 else "1 message will be sent again")
