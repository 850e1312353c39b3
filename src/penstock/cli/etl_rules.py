"""`penstock etl rules`: what is to be made of documents, from the terminal.

What `show` prints is what `add` takes, and what may lie in ETL_RULES_DIR. A try prints the result; where its values
stand goes to standard error.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from penstock.access.domain import MOST_ID
from penstock.cli import etl_show
from penstock.cli.etl_house import RuleNamed, caller, list_all_rules, rule_number, run
from penstock.cli.etl_show import Sizes
from penstock.cli.etl_words import aligned, plain, told_fields
from penstock.documents.shape import Shaped
from penstock.etl import papers, rehearse, rule_files, track
from penstock.etl import rules as room
from penstock.etl.domain import Mode, Rule, RuleBody
from penstock.etl.errors import BadRule
from penstock.etl.rehearse import MOST_SAMPLE, Sample
from penstock.wiring import Runtime

rules = typer.Typer(name="rules", help="Say what is to be made of documents.", invoke_without_command=True)


@rules.callback()
def _begin(context: typer.Context) -> None:
    """Say what is to be made of documents. Without a command, the rules are listed."""
    if context.invoked_subcommand is None:
        list_rules()


@rules.command("list")
def list_rules() -> None:
    """Show the rules that --rule can name."""
    for rule in run(list_all_rules):
        typer.echo(_line(rule))


@rules.command("show")
def show(rule: RuleNamed) -> None:
    """Print a rule as JSON, as `add` takes it."""
    found = run(lambda house: _get(house, rule))
    typer.echo(f"rule {found.id} in version {found.version}, of {_whose(found)}", err=True)
    typer.echo(_pretty({name: value for name, value in asdict(found.body).items() if value}))


@rules.command("add")
def add(
    file: Annotated[
        Path | None, typer.Argument(help="A JSON file with the whole rule.", exists=True, dir_okay=False)
    ] = None,
    *,
    name: Annotated[str | None, typer.Option(help="Its name, where there is no such file.")] = None,
    schema: Annotated[
        Path | None, typer.Option(help="A file with its JSON Schema.", exists=True, dir_okay=False)
    ] = None,
    mode: Annotated[Mode, typer.Option(help="Who fills the schema in; skip: nobody, it takes none.")] = Mode.FIELDS,
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
) -> None:
    """Make a rule: of a file, or of a name and a schema."""
    if (file is None) == (name is None):
        raise typer.BadParameter("a FILE is wanted, or --name")
    if file is not None and schema is not None:
        raise typer.BadParameter("a FILE has its schema in it", param_hint="--schema")
    body = rule_files.read_rule(file) if file is not None else _body(name or "", schema, mode, description)
    typer.echo(_line(run(lambda house: room.add(house.rooms.etl, caller(), body))))


@rules.command("remove")
def remove(rule_id: Annotated[int, typer.Argument(metavar="ID", help="Its number.", min=0, max=MOST_ID)]) -> None:
    """Delete a rule. Tasks that began with it end with it."""
    run(lambda house: room.remove(house.rooms.etl, caller(), rule_id))
    typer.echo(f"{rule_id}\tremoved")


@rules.command("try")
def try_rule(
    rule: RuleNamed,
    file: Annotated[
        Path | None, typer.Argument(help="A text to try it on, in markdown.", exists=True, dir_okay=False)
    ] = None,
    task: Annotated[int | None, typer.Option(help="A task that was read already.", min=1, max=MOST_ID)] = None,
) -> None:
    """Print what a rule makes of a text, or of a document that was read. Nothing of it is kept."""
    if (file is None) == (task is None):
        raise typer.BadParameter("a FILE is wanted, or --task")
    sample = Sample(markdown=_text(file) if file is not None else None, task_id=task)
    shaped, sizes = run(lambda house: _tried(house, rule, sample))
    typer.echo(_pretty(shaped.value))
    _tell_places(shaped, sizes)


async def _get(house: Runtime, named: str) -> Rule:
    return await room.get_rule(house.rooms.etl, caller(), await rule_number(house, named))


async def _tried(house: Runtime, named: str, sample: Sample) -> tuple[Shaped, Sizes]:
    tools = house.rooms.etl
    _, shaped = await rehearse.try_rule(tools, caller(), await rule_number(house, named), sample)
    if sample.task_id is None:
        return shaped, {}
    task = await track.get_task(tools, caller(), sample.task_id)
    return shaped, await etl_show.page_sizes(tools.blobs, papers.pages_key(task))


def _body(name: str, schema: Path | None, mode: Mode, description: str) -> RuleBody:
    said = _schema(schema) if schema is not None else None
    return RuleBody(name=name.strip(), description=description, json_schema=said, postprocess_mode=mode)


def _schema(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(rule_files.read_bounded(path), type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadRule(reason=f"{plain(path.name)} is no JSON object: {error}") from error


def _text(path: Path) -> str:
    """What stands in a file that is a text."""
    with path.open("rb") as file:
        written = file.read(4 * MOST_SAMPLE + 1)  # a character has four bytes at the most
    try:
        text = written.decode()
    except UnicodeDecodeError as error:
        raise typer.BadParameter("it is no text in UTF-8; submit it, and use --task", param_hint="FILE") from error
    if not 1 <= len(text) <= MOST_SAMPLE:
        raise typer.BadParameter(f"it has to have 1 to {MOST_SAMPLE:,} characters", param_hint="FILE")
    return text


def _tell_places(shaped: Shaped, sizes: Sizes) -> None:
    """Where the values stand, as far as anybody knows."""
    known: Sequence[tuple[str, str]] = [
        (path, where) for path, _, where in told_fields(shaped.value, shaped.places, sizes) if where
    ]
    for line in aligned(known) if known else ():
        typer.echo(line, err=True)


def _line(rule: Rule) -> str:
    body = rule.body
    told = (str(rule.id), f"v{rule.version}", str(body.postprocess_mode), _whose(rule), plain(body.name))
    return "\t".join((*told, plain(body.description)))


def _whose(rule: Rule) -> str:
    return "system" if rule.is_system else f"user {rule.user_id}"


def _pretty(value: object) -> str:
    """As JSON for people; what could move the cursor of a terminal is written as a number."""
    written = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return "".join(sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in written)
