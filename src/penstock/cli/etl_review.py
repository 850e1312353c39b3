"""`penstock etl correct`, `corrections` and `accuracy`: what people say about results, from the terminal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penstock.cli.etl_house import RuleNamed, TaskNumber, caller, rule_number, run
from penstock.cli.etl_words import aligned, plain, shortened
from penstock.etl import assess, review, review_files
from penstock.etl.assess import Wanted
from penstock.etl.domain.review import Accuracy, Correction, NewCorrection, Tally
from penstock.etl.domain.rule import MOST_VERSION
from penstock.etl.review import Reviewed, Said
from penstock.etl.review_files import FileKind
from penstock.wiring import Runtime

MOST_PLACE = 60  # characters of a pointer that a line shows

reviews = typer.Typer()  # its commands stand beside the others of `penstock etl`
VersionAsked = Annotated[
    int | None, typer.Option("--version", help="Only of this version of the rule.", min=1, max=MOST_VERSION)
]


@reviews.command("correct", context_settings={"ignore_unknown_options": True})  # -3 is a value
def correct(
    task_id: TaskNumber,
    pointer: Annotated[str | None, typer.Argument(help="A JSON Pointer into the result: /items/0/price.")] = None,
    value: Annotated[str | None, typer.Argument(help="What should stand there: JSON, or else a text.")] = None,
    *,
    note: Annotated[str | None, typer.Option(help="Why; for whoever reads it later.")] = None,
    text: Annotated[bool, typer.Option("--text", help="VALUE is a text, also when it looks like a number.")] = False,
    reviewed: Annotated[bool, typer.Option("--reviewed", help="Every other value was looked at and is right.")] = False,
) -> None:
    """Say what a value of a result should be. With --reviewed alone, that all of it is right."""
    if (pointer is None) != (value is None) or (pointer is None and not reviewed):
        raise typer.BadParameter("a POINTER and a VALUE are wanted, or --reviewed")
    if value is not None and value.startswith("--") and not text:
        raise typer.BadParameter(f"there is no option {value}; with --text it is a value")
    corrections = []
    if pointer is not None and value is not None:
        corrections = [NewCorrection(pointer=pointer, value=_written(value, is_text=text), note=note)]
    said = Said(corrections=corrections, reviewed=reviewed or None)
    _tell(run(lambda house: review.correct(house.rooms.etl, caller(), task_id, said)))


@reviews.command("corrections")
def corrections(
    rule: RuleNamed,
    out: Annotated[Path | None, typer.Option(help="A file for all of them: FILE.csv or FILE.jsonl.")] = None,
    version: VersionAsked = None,
) -> None:
    """Show what was corrected in the results of a rule, the newest first; or write it to a file."""
    file = None if out is None else (out, _kind_of(out))
    run(lambda house: _bring(house, rule, version, file))


@reviews.command("accuracy")
def accuracy(rule: RuleNamed, version: VersionAsked = None) -> None:
    """Show how good a rule is: the share of values that were right, of those that somebody looked at."""

    async def find(house: Runtime) -> Accuracy:
        return await assess.accuracy(house.rooms.etl, caller(), await rule_number(house, rule), version=version)

    for line in _told(run(find)):
        typer.echo(line)


def _written(value: str, *, is_text: bool) -> str:
    """A value as JSON; what is none is a text."""
    try:
        return msgspec.json.encode(value if is_text else _read(value)).decode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter("it is no UTF-8", param_hint="VALUE") from error


def _read(value: str) -> object:
    try:
        return msgspec.json.decode(value)
    except msgspec.MsgspecError:
        return value


def _kind_of(out: Path) -> FileKind:
    try:
        return FileKind(out.suffix.lower().removeprefix("."))
    except ValueError as error:
        raise typer.BadParameter("its name must end in .csv or .jsonl", param_hint="--out") from error


async def _bring(house: Runtime, rule: str, version: int | None, file: tuple[Path, FileKind] | None) -> None:
    wanted = Wanted(rule_id=await rule_number(house, rule), version=version)
    pages = assess.walk(house.rooms.etl, caller(), wanted)
    if file is None:
        async for page in pages:
            for one in page:
                typer.echo(_line(one))
        return
    path, kind = file
    pieces = review_files.written(pages, kind)
    try:
        with path.open("wb") as target:
            async for piece in pieces:
                target.write(piece)
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="--out") from error


def _tell(told: Reviewed) -> None:
    for one in told.corrections:
        typer.echo(_line(one))
    if told.review is not None and told.review.is_whole:
        typer.echo(f"task {told.task.id} is reviewed by {plain(told.review.reviewed_by)}", err=True)


def _line(one: Correction) -> str:
    before = "-" if one.original is None else shortened(one.original)
    cells = (one.id, one.task_id, shortened(one.pointer, MOST_PLACE), before, shortened(one.corrected))
    return "\t".join(map(plain, (*cells, one.created_by, shortened(one.note or ""))))


def _told(found: Accuracy) -> Iterator[str]:
    tasks = f"{found.reviewed_tasks} tasks, {found.reviewed_whole} of them reviewed whole"
    yield f"rule {found.rule_id}: {_percent(found.tally)} of {found.tally.values} values right, in {tasks}"
    if not found.is_all:
        yield f"these are the latest {assess.MOST_REVIEWS} reviews; earlier ones are left out"
    rows = [("VERSION OR FIELD", "VALUES", "WRONG", "RIGHT")]
    rows += [_row(f"v{version}", tally) for version, tally in found.versions.items()]
    worst_first = sorted(found.tally.by_field.items(), key=lambda one: (one[1].accuracy or 0.0, one[0]))
    rows += [_row(shortened(name, MOST_PLACE), tally) for name, tally in worst_first]
    if len(rows) > 1:
        yield from aligned(rows)


def _row(name: str, tally: Tally) -> tuple[str, str, str, str]:
    return name, str(tally.values), str(tally.corrected), _percent(tally)


def _percent(tally: Tally) -> str:
    return "-" if tally.accuracy is None else f"{tally.accuracy:.1%}"
