"""The commands of `penstock etl` with their options. What a command does is imported when it runs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.access.domain import MAX_ID
from penstock.cli.options import Since, Until
from penstock.etl.domain.rule import MAX_VERSION, Mode
from penstock.etl.domain.task import Stage

app = typer.Typer(name="etl", no_args_is_help=True, rich_markup_mode=None)
rules = typer.Typer(name="rules", help="Manage rules: what to extract from documents.", invoke_without_command=True)
app.add_typer(rules)

TaskId = Annotated[int, typer.Argument(metavar="TASK", help="The task's id.", min=1, max=MAX_ID)]
RuleRef = Annotated[str, typer.Argument(metavar="RULE", help="The rule's id or name.")]
RuleVersion = Annotated[
    int | None, typer.Option("--version", help="Only results of this version of the rule.", min=1, max=MAX_VERSION)
]


class Output(StrEnum):
    """A stored output of a task."""

    RESULT = "result"
    MARKDOWN = "markdown"
    GROUNDING = "grounding"


@app.command()
def submit(
    files: Annotated[list[Path], typer.Argument(help="Files, or folders of files.", exists=True)],
    rule: Annotated[str | None, typer.Option(help="The rule's id or name; the default rule if omitted.")] = None,
    project: Annotated[int, typer.Option(help="The project of the tasks.", min=0, max=MAX_ID)] = 0,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all tasks have finished.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Process everything again; use no cached results.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="A folder for results and markdown, or a table FILE.csv. Implies --wait.")
    ] = None,
) -> None:
    """Submit documents. With --wait and no running worker, this process does the work."""
    from penstock.cli.etl.submission import submit_files

    wait = wait or out is not None
    raise typer.Exit(submit_files(files, rule=rule, project_id=project, out=out, wait=wait, force=force))


@app.command()
def show(
    task_id: TaskId,
    output: Annotated[
        Output | None, typer.Option("--print", help="Print this output as it is stored, and nothing else.")
    ] = None,
) -> None:
    """Show a task: its progress, its outcome, and the place on the page of each value."""
    from penstock.cli.etl.show import print_output, print_task

    if output is not None:
        print_output(task_id, output)
    else:
        print_task(task_id)


class Ended(StrEnum):
    """A status that a task can be retried from."""

    FAILED = "failed"
    CANCELLED = "cancelled"


@app.command()
def orphans() -> None:
    """List uploaded documents that have no task. They are deleted automatically after a few hours."""
    from penstock.cli.etl.show import print_orphans

    print_orphans()


@app.command()
def retry(  # noqa: PLR0913  (each is an option of the command)
    task_id: Annotated[int | None, typer.Argument(metavar="TASK", help="The task's id.", min=1, max=MAX_ID)] = None,
    *,
    from_stage: Annotated[
        Stage | None,
        typer.Option("--from", help="mineru: read the document again. postprocess: reuse what was read."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also a completed task; use no cached results.")] = False,
    status: Annotated[Ended | None, typer.Option(help="Instead of TASK: all tasks with this status.")] = None,
    error_code: Annotated[
        str | None, typer.Option(help="With --status: only those that failed with this code, such as TASK_TIMEOUT.")
    ] = None,
    project: Annotated[
        int | None, typer.Option(help="With --status: only those of this project.", min=0, max=MAX_ID)
    ] = None,
    rule: Annotated[str | None, typer.Option(help="With --status: only those of this rule, by id or name.")] = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Retry a task that failed or was cancelled, or with --status all that match. Free workers take them."""
    filters = [error_code, project, rule, since, until]
    if (task_id is None) == (status is None):
        raise typer.BadParameter("give either TASK or --status")
    if status is None and any(value is not None for value in filters):
        raise typer.BadParameter("filters need --status")
    if task_id is not None:
        from penstock.cli.etl.show import retry_task

        retry_task(task_id, from_stage=from_stage, force=force)
        return
    if force:
        raise typer.BadParameter("--force takes a TASK", param_hint="--force")
    from penstock.cli.etl.bulk import BulkOptions, retry_tasks

    options = BulkOptions(
        status=str(status), error_code=error_code, project_id=project, rule=rule, since=since, until=until
    )
    raise typer.Exit(retry_tasks(options, from_stage=from_stage))


@app.command()
def cancel(
    task_id: TaskId,
    force: Annotated[bool, typer.Option("--force", help="Also a running task: its worker stops.")] = False,
) -> None:
    """Cancel a waiting task."""
    from penstock.cli.etl.show import cancel_task

    cancel_task(task_id, force=force)


@app.command(context_settings={"ignore_unknown_options": True})  # -3 is a value
def correct(
    task_id: TaskId,
    pointer: Annotated[str | None, typer.Argument(help="A JSON Pointer into the result: /items/0/price.")] = None,
    value: Annotated[str | None, typer.Argument(help="The correct value: JSON, or else text.")] = None,
    *,
    note: Annotated[str | None, typer.Option(help="The reason, for later readers.")] = None,
    text: Annotated[bool, typer.Option("--text", help="VALUE is text, even if it looks like a number.")] = False,
    reviewed: Annotated[bool, typer.Option("--reviewed", help="All other values were reviewed and are right.")] = False,
) -> None:
    """Correct a value of a result. With --reviewed alone, mark the whole result as right."""
    from penstock.cli.etl.reviews import correct_value

    correct_value(task_id, pointer, value, note=note, text=text, reviewed=reviewed)


@app.command()
def corrections(
    rule: RuleRef,
    out: Annotated[Path | None, typer.Option(help="Write all of them to FILE.csv or FILE.jsonl.")] = None,
    version: RuleVersion = None,
) -> None:
    """List the corrections of a rule's results, newest first, or write them to a file."""
    from penstock.cli.etl.reviews import list_corrections

    list_corrections(rule, version=version, out=out)


@app.command()
def accuracy(rule: RuleRef, version: RuleVersion = None) -> None:
    """Show the accuracy of a rule: the share of reviewed values that were right."""
    from penstock.cli.etl.reviews import show_accuracy

    show_accuracy(rule, version=version)


@rules.callback()
def _list_by_default(context: typer.Context) -> None:
    """Manage rules: what to extract from documents. Without a command, list them."""
    if context.invoked_subcommand is None:
        list_rules()


@rules.command("list")
def list_rules() -> None:
    """List the rules that --rule accepts."""
    from penstock.cli.etl.rules import print_rules

    print_rules()


@rules.command("show")
def show_rule(rule: RuleRef) -> None:
    """Print a rule as JSON, in the form that `add` reads."""
    from penstock.cli.etl.rules import print_rule

    print_rule(rule)


@rules.command("add")
def add_rule(
    file: Annotated[
        Path | None, typer.Argument(help="A JSON file with the whole rule.", exists=True, dir_okay=False)
    ] = None,
    *,
    name: Annotated[str | None, typer.Option(help="The rule's name, if there is no FILE.")] = None,
    schema: Annotated[
        Path | None, typer.Option(help="A file with its JSON Schema.", exists=True, dir_okay=False)
    ] = None,
    mode: Annotated[Mode, typer.Option(help="What fills in the schema. skip takes no schema.")] = Mode.FIELDS,
    description: Annotated[str, typer.Option(help="What the rule is for.")] = "",
) -> None:
    """Add a rule from a file, or from a name and a schema."""
    from penstock.cli.etl import rules as actions

    if (file is None) == (name is None):
        raise typer.BadParameter("expected either FILE or --name")
    if file is not None and schema is not None:
        raise typer.BadParameter("FILE already contains the schema", param_hint="--schema")
    if file is not None:
        actions.add_rule_file(file)
    else:
        actions.add_rule(name or "", schema=schema, mode=mode, description=description)


@rules.command("remove")
def remove_rule(
    rule_id: Annotated[int, typer.Argument(metavar="ID", help="The rule's id.", min=0, max=MAX_ID)],
) -> None:
    """Remove a rule. Tasks that started with it finish with it."""
    from penstock.cli.etl import rules as actions

    actions.remove_rule(rule_id)


@rules.command("try")
def try_rule(
    rule: RuleRef,
    file: Annotated[
        Path | None, typer.Argument(help="Markdown text to try it on.", exists=True, dir_okay=False)
    ] = None,
    task: Annotated[int | None, typer.Option(help="A task whose document was read.", min=1, max=MAX_ID)] = None,
) -> None:
    """Print what a rule extracts from a text, or from a document that was read. Nothing is stored."""
    from penstock.cli.etl import rules as actions

    if (file is None) == (task is None):
        raise typer.BadParameter("expected either FILE or --task")
    actions.try_rule(rule, file, task_id=task)
