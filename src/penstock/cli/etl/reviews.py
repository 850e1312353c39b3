"""`penstock etl correct`, `corrections` and `accuracy`."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import typer

from penstock.cli.etl.session import caller, find_rule_id, run_on_existing
from penstock.cli.text import align, printable, shorten
from penstock.etl import accuracy, correction_export
from penstock.etl.accuracy import CorrectionQuery
from penstock.etl.api import actions
from penstock.etl.correction_export import ExportFormat
from penstock.etl.domain.review import Accuracy, Correction, NewCorrection, ValueCounts
from penstock.etl.review import ReviewInput
from penstock.wiring import Runtime

MAX_POINTER = 60  # characters of a JSON Pointer that a line shows


def correct_value(
    task_id: int, pointer: str | None, value: str | None, *, note: str | None, text: bool, reviewed: bool
) -> None:
    """Store a correction, a review of the whole result, or both, and print them."""
    if (pointer is None) != (value is None) or (pointer is None and not reviewed):
        raise typer.BadParameter("expected POINTER and VALUE, or --reviewed")
    if value is not None and value.startswith("--") and not text:
        raise typer.BadParameter(f"no such option: {value}; use --text if it is a value")
    corrections = []
    if pointer is not None and value is not None:
        corrections = [NewCorrection(pointer=pointer, value=_to_json(value, is_text=text), note=note)]
    given = ReviewInput(corrections=corrections, reviewed=reviewed or None)
    stored = run_on_existing(lambda runtime: actions.correct(runtime.modules.etl, caller(), task_id, given))
    for correction in stored.corrections:
        typer.echo(_line(correction))
    if stored.review is not None and stored.review.is_whole:
        typer.echo(f"task {stored.task.id} is reviewed by {printable(stored.review.reviewed_by)}", err=True)


def list_corrections(rule: str, *, version: int | None, out: Path | None) -> None:
    """Print the corrections of a rule's results, or write them to a file."""
    kind = None if out is None else _file_kind(out)

    async def write(runtime: Runtime) -> None:
        selected = CorrectionQuery(rule_id=await find_rule_id(runtime, rule), version=version)
        pages = actions.iter_corrections(runtime.modules.etl, caller(), selected)
        if out is None or kind is None:
            async for page in pages:
                for correction in page:
                    typer.echo(_line(correction))
            return
        try:
            with out.open("wb") as file:
                async for chunk in correction_export.export_corrections(pages, kind):
                    file.write(chunk)
        except OSError as error:
            raise typer.BadParameter(str(error), param_hint="--out") from error

    run_on_existing(write)


def show_accuracy(rule: str, *, version: int | None) -> None:
    """Print the accuracy of a rule, by version and by field."""

    async def read(runtime: Runtime) -> Accuracy:
        return await actions.measure_accuracy(
            runtime.modules.etl, caller(), await find_rule_id(runtime, rule), version=version
        )

    for line in _accuracy_lines(run_on_existing(read)):
        typer.echo(line)


def _to_json(value: str, *, is_text: bool) -> str:
    """A value as JSON. What does not parse as JSON is text."""
    try:
        return msgspec.json.encode(value if is_text else _parse(value)).decode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter("not valid UTF-8", param_hint="VALUE") from error


def _parse(value: str) -> object:
    try:
        return msgspec.json.decode(value)
    except msgspec.MsgspecError:
        return value


def _file_kind(out: Path) -> ExportFormat:
    try:
        return ExportFormat(out.suffix.lower().removeprefix("."))
    except ValueError as error:
        raise typer.BadParameter("expected a name that ends in .csv or .jsonl", param_hint="--out") from error


def _line(correction: Correction) -> str:
    original = "-" if correction.original is None else shorten(correction.original)
    pointer, corrected = shorten(correction.pointer, MAX_POINTER), shorten(correction.corrected)
    cells = (correction.id, correction.task_id, pointer, original, corrected, correction.created_by)
    return "\t".join(map(printable, (*cells, shorten(correction.note or ""))))


def _accuracy_lines(found: Accuracy) -> Iterator[str]:
    tasks = f"{found.reviewed_tasks} tasks, {found.reviewed_whole} of them reviewed whole"
    yield f"rule {found.rule_id}: {_percent(found.counts)} of {found.counts.values} values right, in {tasks}"
    if not found.is_all:
        yield f"only the latest {accuracy.MAX_REVIEWS} reviews are counted"
    rows = [("VERSION OR FIELD", "VALUES", "WRONG", "RIGHT")]
    rows += [_row(f"v{version}", counts) for version, counts in found.versions.items()]
    worst_first = sorted(found.counts.by_field.items(), key=lambda item: (item[1].accuracy or 0.0, item[0]))
    rows += [_row(shorten(name, MAX_POINTER), counts) for name, counts in worst_first]
    if len(rows) > 1:
        yield from align(rows)


def _row(name: str, counts: ValueCounts) -> tuple[str, str, str, str]:
    return name, str(counts.values), str(counts.corrected), _percent(counts)


def _percent(counts: ValueCounts) -> str:
    return "-" if counts.accuracy is None else f"{counts.accuracy:.1%}"
