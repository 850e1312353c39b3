"""One errand: documents are brought to the house, watched if wanted, and what became of them is brought back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import typer

from penstock.access.domain import Caller
from penstock.cli import etl_out
from penstock.cli.etl_files import Document
from penstock.cli.etl_house import rule_number
from penstock.cli.etl_out import Outcome
from penstock.cli.etl_watch import Watch, new_bar
from penstock.cli.etl_words import aligned, plain, shortened
from penstock.etl import papers, receive
from penstock.etl import submit as room
from penstock.etl.domain import EtlTask, Status
from penstock.etl.errors import QueueFull
from penstock.etl.receive import Sent
from penstock.etl.submit import NewTask
from penstock.kernel.errors import Invalid, PenstockError
from penstock.settings import Settings
from penstock.wiring import Runtime, open_runtime

MOST_BYTES = 512 * 1024 * 1024  # of one result, or one markdown
STOPPED = 130  # what shells say of a command that Ctrl-C ended
REFUSED = "refused"  # what there is no task of
COLUMNS = ("FILE", "TASK", "STAGE", "CODE", "WHY")


class FileNotReadable(Invalid):
    """A file that was to be submitted cannot be opened."""

    code = "FILE_NOT_READABLE"
    message = "{name} cannot be opened: {reason}."
    message_zh = "无法打开 {name}：{reason}。"
    hint = "Check that the file is still there, and that you may read it."
    hint_zh = "请检查文件是否仍在，以及您是否有读取权限。"


@dataclass(frozen=True, kw_only=True)
class Order:
    """What was asked for on the command line."""

    documents: Sequence[Document]
    rule: str | None
    project_id: int
    out: Path | None
    wait: bool
    force: bool = False


class Errand:
    """The way of some documents, there and back."""

    def __init__(self, order: Order, caller: Caller) -> None:
        self._order = order
        self._caller = caller
        self._outcomes: list[Outcome] = []
        self._left: dict[int, Document] = {}  # in the queue, and not seen to their end
        self._not_brought = len(order.documents)
        self._is_over = False

    async def run(self, settings: Settings) -> None:
        """Bring the documents there; wait for them if that was asked for."""
        async with open_runtime(settings) as house:
            self._tools = house.rooms.etl
            self._rule_id = await rule_number(house, self._order.rule) if self._order.rule is not None else None
            await (self._see_through(house) if self._order.wait else self._bring_all())
        self._is_over = True

    def sum_up(self) -> int:
        """Say what became of them; returns the exit status."""
        if self._order.out is not None and etl_out.is_table(self._order.out) and self._outcomes:
            etl_out.write_table(self._order.out, self._outcomes)
        failed = [outcome for outcome in self._outcomes if outcome.code]
        if failed:
            for line in _told(failed):
                typer.echo(line, err=True)
        if self._left or self._not_brought:
            self._tell_left()
        if not self._is_over:
            return STOPPED
        return 1 if failed or self._not_brought else 0

    async def _bring_all(self) -> None:
        for document in self._order.documents:
            try:
                task = await self._bring(document)
            except QueueFull as error:
                typer.echo(f"penstock: {error}\n  {error.hint}", err=True)
                return
            if task is not None:
                typer.echo(f"{task.id}\t{task.status}\t{plain(document.name)}")

    async def _see_through(self, house: Runtime) -> None:
        with new_bar() as bar:
            watch = Watch(house, self._caller, bar, bring=self._bring, ended=self._ended)
            self._left = watch.under_way
            await watch.run(self._order.documents)

    async def _bring(self, document: Document) -> EtlTask | None:
        """Store and submit one document. One that is refused stops none of the others."""
        try:
            task = await self._submit(document)
        except PenstockError as error:
            if isinstance(error, QueueFull) or error.ours:
                raise  # the next would not fare better
            refused = Outcome(name=document.name, task_id=0, status=REFUSED)
            self._outcomes.append(replace(refused, error=str(error), code=error.code, hint=error.hint or ""))
            task = None
        self._not_brought -= 1
        return task

    async def _submit(self, document: Document) -> EtlTask:
        name, project_id, rule_id = document.name, self._order.project_id, self._rule_id
        sent = Sent(file=document.path, filename=name, project_id=project_id, rule_id=rule_id)
        try:
            async with receive.kept(self._tools, self._caller, sent) as kept:
                new = NewTask(
                    project_id=project_id,
                    filename=kept.filename,
                    rule_id=rule_id,
                    s3_key=kept.key,
                    force=self._order.force,
                )
                task = await room.submit(self._tools, self._caller, new)
        except OSError as error:
            raise FileNotReadable(name=name, reason=error.strerror) from error
        return task

    async def _ended(self, document: Document, task: EtlTask) -> None:
        outcome = Outcome(name=document.name, task_id=task.id, status=task.status)
        if task.status is not Status.COMPLETED:
            outcome = _failed(outcome, task)
        elif self._order.out is not None:
            outcome = await self._fetched(outcome, task, self._order.out)
        self._outcomes.append(outcome)
        typer.echo(f"{task.id}\t{task.status}\t{plain(document.name)}")

    async def _fetched(self, outcome: Outcome, task: EtlTask, out: Path) -> Outcome:
        """Bring the result here: into the folder at once, or, for a table, along to the end."""
        blobs = self._tools.blobs
        value = msgspec.json.decode(await blobs.get(papers.result_key(task), most_bytes=MOST_BYTES))
        if etl_out.is_table(out):
            return replace(outcome, value=value)
        markdown = await blobs.get(papers.markdown_key(task), most_bytes=MOST_BYTES)
        etl_out.write_files(out, outcome.name, value, markdown)
        return outcome

    def _tell_left(self) -> None:
        if self._left:
            numbers = ", ".join(map(str, sorted(self._left)))
            whoever = "`penstock serve` or `penstock work` goes on with them"
            typer.echo(f"still in the queue: {numbers}; {whoever}.", err=True)
        if self._not_brought:
            typer.echo(f"{self._not_brought} documents were not submitted.", err=True)


def _failed(outcome: Outcome, task: EtlTask) -> Outcome:
    code, stage, hint = (task.metadata.get(name) or "" for name in ("error_code", "error_stage", "hint"))
    return replace(outcome, error=task.error or "", code=code or task.status.upper(), stage=stage, hint=hint)


def _told(failed: Sequence[Outcome]) -> Iterator[str]:
    """A table of what failed, and why; what helps stands below its line, since it may be long."""
    rows = [COLUMNS, *(_cells(one) for one in failed)]
    for line, hint in zip(aligned(rows), ("", *(one.hint for one in failed)), strict=True):
        yield line
        if hint:
            yield f"  {plain(hint)}"


def _cells(one: Outcome) -> tuple[str, ...]:
    cells = (shortened(one.name), one.task_id or "-", one.stage or "-", one.code, one.error)
    return tuple(map(plain, cells))
