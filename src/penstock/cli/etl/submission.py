"""`penstock etl submit`: upload documents, wait for their tasks if asked to, and fetch the results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import typer

from penstock.access.domain import Caller
from penstock.cli.etl import output
from penstock.cli.etl.files import InputFile, find_files
from penstock.cli.etl.output import DocumentOutcome
from penstock.cli.etl.progress import TaskWatcher, new_progress_bar
from penstock.cli.etl.session import caller as cli_caller
from penstock.cli.etl.session import find_rule_id, load_settings
from penstock.cli.signals import run_until_signal
from penstock.cli.text import align, printable, shorten
from penstock.etl import artifacts
from penstock.etl.api import actions
from penstock.etl.domain import EtlTask, Status
from penstock.etl.errors import QueueFull, QueueShareFull
from penstock.etl.upload import UploadedDocument
from penstock.kernel.errors import Invalid, PenstockError
from penstock.settings import Settings
from penstock.wiring import Runtime, open_runtime

MAX_BYTES = 512 * 1024 * 1024  # of one result, or one markdown
MAX_SKIPPED_SHOWN = 10
EXIT_INTERRUPTED = 130  # the shell's exit status after Ctrl-C
REFUSED = "refused"  # the status of a document for which no task was made
HEADINGS = ("FILE", "TASK", "STAGE", "CODE", "WHY")


class FileNotReadable(Invalid):
    """A file to submit cannot be opened."""

    code = "FILE_NOT_READABLE"
    message = "{name} cannot be opened: {reason}."
    message_zh = "无法打开 {name}：{reason}。"
    hint = "Check that the file still exists and that you may read it."
    hint_zh = "请检查文件是否仍然存在，以及您是否有读取权限。"


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """The options of the command line."""

    rule: str | None
    project_id: int
    out: Path | None
    wait: bool
    force: bool = False


def submit_files(
    paths: Sequence[Path], *, rule: str | None, project_id: int, out: Path | None, wait: bool, force: bool
) -> int:
    """Submit files, and the files in folders; returns the exit status."""
    if out is not None:
        try:
            output.make_folder(out)
        except OSError as error:
            raise typer.BadParameter(str(error), param_hint="--out") from error
    files, skipped = find_files(paths)
    if skipped:
        names = ", ".join(printable(path) for path in skipped[:MAX_SKIPPED_SHOWN])
        more = f" and {len(skipped) - MAX_SKIPPED_SHOWN} more" if len(skipped) > MAX_SKIPPED_SHOWN else ""
        typer.echo(f"skipped, not a readable type: {names}{more}", err=True)
    if not files:
        typer.echo("No readable documents found.", err=True)
        return 1
    options = SubmitOptions(rule=rule, project_id=project_id, out=out, wait=wait, force=force)
    submission = Submission(files, options, cli_caller())
    run_until_signal(submission.run(load_settings()))
    return submission.report()


class Submission:
    """The documents of one command, from upload to result."""

    def __init__(self, files: Sequence[InputFile], options: SubmitOptions, caller: Caller) -> None:
        self._files = files
        self._options = options
        self._caller = caller
        self._outcomes: list[DocumentOutcome] = []
        self._unfinished: dict[int, InputFile] = {}  # submitted, and not seen to finish
        self._not_submitted = len(files)
        self._completed = False

    async def run(self, settings: Settings) -> None:
        """Submit the documents; wait for them if the options say so."""
        async with open_runtime(settings) as runtime:
            self._etl = runtime.modules.etl
            self._rule_id = await find_rule_id(runtime, self._options.rule) if self._options.rule is not None else None
            await (self._submit_and_wait(runtime) if self._options.wait else self._submit_all())
        self._completed = True

    def report(self) -> int:
        """Write the table, print failures and what is left; returns the exit status."""
        if self._options.out is not None and output.is_table(self._options.out) and self._outcomes:
            output.write_table(self._options.out, self._outcomes)
        failed = [outcome for outcome in self._outcomes if outcome.code]
        if failed:
            for line in _failure_lines(failed):
                typer.echo(line, err=True)
        if self._unfinished:
            ids = ", ".join(map(str, sorted(self._unfinished)))
            typer.echo(f"still in the queue: {ids}; `penstock serve` or `penstock work` continues them.", err=True)
        if self._not_submitted:
            typer.echo(f"{self._not_submitted} documents were not submitted.", err=True)
        if not self._completed:
            return EXIT_INTERRUPTED
        return 1 if failed or self._not_submitted else 0

    async def _submit_all(self) -> None:
        for file in self._files:
            try:
                task = await self._submit_or_refuse(file)
            except (QueueFull, QueueShareFull) as error:
                typer.echo(f"penstock: {error}\n  {error.hint}", err=True)
                return
            if task is not None:
                typer.echo(f"{task.id}\t{task.status}\t{printable(file.name)}")

    async def _submit_and_wait(self, runtime: Runtime) -> None:
        with new_progress_bar() as bar:
            watcher = TaskWatcher(
                runtime, self._caller, bar, submit=self._submit_or_refuse, on_finished=self._on_finished
            )
            self._unfinished = watcher.in_progress
            await watcher.run(self._files)

    async def _submit_or_refuse(self, file: InputFile) -> EtlTask | None:
        """Upload and submit one document. A refused document does not stop the others."""
        try:
            task = await self._submit(file)
        except PenstockError as error:
            if isinstance(error, QueueFull | QueueShareFull) or error.internal_outage:
                raise  # the next document would fail in the same way
            refused = DocumentOutcome(name=file.name, task_id=0, status=REFUSED)
            self._outcomes.append(replace(refused, error=str(error), code=error.code, hint=error.hint or ""))
            task = None
        self._not_submitted -= 1
        return task

    async def _submit(self, file: InputFile) -> EtlTask:
        project_id, rule_id = self._options.project_id, self._rule_id
        document = UploadedDocument(file=file.path, filename=file.name, project_id=project_id, rule_id=rule_id)
        try:
            return await actions.upload_task(self._etl, self._caller, document, force=self._options.force)
        except OSError as error:
            raise FileNotReadable(name=file.name, reason=error.strerror) from error

    async def _on_finished(self, file: InputFile, task: EtlTask) -> None:
        outcome = DocumentOutcome(name=file.name, task_id=task.id, status=task.status)
        if task.status is not Status.COMPLETED:
            outcome = _failed(outcome, task)
        elif self._options.out is not None:
            outcome = await self._fetch(outcome, task, self._options.out)
        self._outcomes.append(outcome)
        typer.echo(f"{task.id}\t{task.status}\t{printable(file.name)}")

    async def _fetch(self, outcome: DocumentOutcome, task: EtlTask, out: Path) -> DocumentOutcome:
        """Fetch the result: written to the folder at once, or kept for the table."""
        blobs = self._etl.blobs
        value = msgspec.json.decode(await blobs.get(artifacts.result_key(task), max_bytes=MAX_BYTES))
        if output.is_table(out):
            return replace(outcome, value=value)
        markdown = await blobs.get(artifacts.markdown_key(task), max_bytes=MAX_BYTES)
        output.write_files(out, outcome.name, value, markdown)
        return outcome


def _failed(outcome: DocumentOutcome, task: EtlTask) -> DocumentOutcome:
    code, stage, hint = (task.metadata.get(name) or "" for name in ("error_code", "error_stage", "hint"))
    return replace(outcome, error=task.error or "", code=code or task.status.upper(), stage=stage, hint=hint)


def _failure_lines(failed: Sequence[DocumentOutcome]) -> Iterator[str]:
    """A table of failures; a hint may be long, so it stands on a line of its own."""
    rows: list[tuple[str, ...]] = [HEADINGS]
    for outcome in failed:
        cells = (shorten(outcome.name), outcome.task_id or "-", outcome.stage or "-", outcome.code, outcome.error)
        rows.append(tuple(map(printable, cells)))
    for line, hint in zip(align(rows), ("", *(outcome.hint for outcome in failed)), strict=True):
        yield line
        if hint:
            yield f"  {printable(hint)}"
