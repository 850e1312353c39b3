"""`penstock etl rules`: list, show, add, remove and try rules.

`show` prints what `add` reads and what ETL_RULES_DIR may hold. `try` prints the result to standard output and the
places of its values to standard error.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import typer

from penstock.cli.etl.session import caller, find_rule_id, list_all_rules, run
from penstock.cli.etl.show import read_page_sizes
from penstock.cli.etl.text import PageSizes, describe_fields
from penstock.cli.text import align, printable
from penstock.documents.postprocessor import ExtractionResult
from penstock.etl import artifacts, rule_files
from penstock.etl.api import actions, status
from penstock.etl.domain import Mode, Rule, RuleBody
from penstock.etl.dry_run import MAX_SAMPLE_CHARS, RuleSample
from penstock.etl.errors import BadRule
from penstock.wiring import Runtime


def print_rules() -> None:
    """Print one line per rule."""
    for rule in run(list_all_rules):
        typer.echo(_line(rule))


def print_rule(reference: str) -> None:
    """Print a rule as JSON."""

    async def read(runtime: Runtime) -> Rule:
        return await actions.get_rule(runtime.modules.etl, caller(), await find_rule_id(runtime, reference))

    rule = run(read)
    typer.echo(f"rule {rule.id}, version {rule.version}, owner {_owner(rule)}", err=True)
    typer.echo(_pretty({name: value for name, value in asdict(rule.body).items() if value}))


def add_rule_file(path: Path) -> None:
    """Add the rule in a JSON file."""
    _add(rule_files.read_rule(path))


def add_rule(name: str, *, schema: Path | None, mode: Mode, description: str) -> None:
    """Add a rule with the schema in a file."""
    json_schema = _read_schema(schema) if schema is not None else None
    _add(RuleBody(name=name.strip(), description=description, json_schema=json_schema, postprocess_mode=mode))


def remove_rule(rule_id: int) -> None:
    """Remove a rule."""
    run(lambda runtime: actions.remove_rule(runtime.modules.etl, caller(), rule_id))
    typer.echo(f"{rule_id}\tremoved")


def try_rule(reference: str, file: Path | None, *, task_id: int | None) -> None:
    """Apply a rule to the text in a file or to the document of a task, and print the result."""
    sample = RuleSample(markdown=_read_text(file) if file is not None else None, task_id=task_id)

    async def apply(runtime: Runtime) -> tuple[ExtractionResult, PageSizes]:
        etl = runtime.modules.etl
        _, extracted = await actions.try_rule(etl, caller(), await find_rule_id(runtime, reference), sample)
        if task_id is None:
            return extracted, {}
        task = await status.get_task(etl, caller(), task_id)
        return extracted, await read_page_sizes(etl.blobs, artifacts.pages_key(task))

    extracted, sizes = run(apply)
    typer.echo(_pretty(extracted.value))
    places = [(path, where) for path, _, where in describe_fields(extracted.value, extracted.citations, sizes) if where]
    for line in align(places):
        typer.echo(line, err=True)


def _add(body: RuleBody) -> None:
    typer.echo(_line(run(lambda runtime: actions.add_rule(runtime.modules.etl, caller(), body))))


def _read_schema(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(rule_files.read_bounded(path), type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadRule(reason=f"{printable(path.name)} is not a JSON object: {error}") from error


def _read_text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(4 * MAX_SAMPLE_CHARS + 1)  # a character has at most four bytes
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise typer.BadParameter("not UTF-8 text; submit the document and use --task", param_hint="FILE") from error
    if not 1 <= len(text) <= MAX_SAMPLE_CHARS:
        raise typer.BadParameter(f"expected 1 to {MAX_SAMPLE_CHARS:,} characters", param_hint="FILE")
    return text


def _line(rule: Rule) -> str:
    body = rule.body
    cells = (str(rule.id), f"v{rule.version}", str(body.postprocess_mode), _owner(rule), printable(body.name))
    return "\t".join((*cells, printable(body.description)))


def _owner(rule: Rule) -> str:
    return "system" if rule.is_system else f"user {rule.user_id}"


def _pretty(value: object) -> str:
    """A value as indented JSON. Characters that could move the cursor of a terminal are escaped."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return "".join(sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in text)
