"""An import from files of the older store: in which order they are read, in which batches they are stored, the report.

Files are read once, as streams. Each batch is a transaction of its own; a dry run stores it too and rolls it back, so
that its report comes from the same code. A dry run does not see the batches before: what is in the files twice, in
different batches, counts as created twice.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from penstock.access import older_keys
from penstock.access.domain import Scope
from penstock.access.older_keys import OlderKey
from penstock.kernel.db import Db, Tx
from penstock.tasks import import_tasks
from penstock.tasks.api.import_documents import ExportDocument, read_documents
from penstock.tasks.api.import_shapes import Collection, DocumentReader, ExportedKey, Part, describe, recognize
from penstock.tasks.domain.imported import Imported, ImportedQueue, ImportedTask
from penstock.tasks.import_tasks import CREATED, EXISTS, UPDATED, Importer, Tally

BATCH_ITEMS = 500  # in one transaction
BATCH_BYTES = 16 * 1024 * 1024
# Reasons for a skip, for what no verb sees.
OTHER_PROJECT = "belongs to another project"
NO_ENCRYPTION_KEY = "encrypted: set ENCRYPTION_KEY to the older store's"
SKIPPED = {
    Collection.USERS: "its bcrypt password cannot be verified here: add the user again",
    Collection.STATISTICS: "executions elsewhere are not counted here",
}


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """What to import, and how."""

    project: str | None = None  # only this one
    encryption_key: str | None = None
    key_scope: Scope = Scope.WRITE
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True)
class ImportItem:
    """One thing of an export: a value to store, a reason to skip it, or a problem. The size is that of its document."""

    collection: Collection
    file: str
    line: int
    value: Imported | OlderKey | None = None
    skipped: str = ""
    problem: str = ""
    size_bytes: int = 0


@dataclass(kw_only=True)
class CollectionReport:
    """What happened to one collection."""

    read: int = 0
    created: int = 0
    updated: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    bad: int = 0


class ImportReport(dict[str, CollectionReport]):
    """What happened, by collection."""

    def of(self, collection: str) -> CollectionReport:
        """The report of one collection."""
        return self.setdefault(str(collection), CollectionReport())

    def add(self, tally: Tally) -> None:
        """Add the outcomes of a batch."""
        for (collection, outcome), count in tally.items():
            report = self.of(collection)
            if outcome == CREATED:
                report.created += count
            elif outcome == UPDATED:
                report.updated += count
            else:
                report.skipped[outcome] += count

    @property
    def bad(self) -> int:
        """Invalid documents and tasks."""
        return sum(report.bad for report in self.values())

    @property
    def read(self) -> int:
        """Documents and tasks that were read."""
        return sum(report.read for report in self.values())


def read_files(paths: Sequence[Path], options: ImportOptions) -> Iterator[ImportItem]:
    """Everything in these files, projects first: queues and tasks refer to them."""
    reader, order = DocumentReader(), list(Collection)
    collections = [(_collection_of(path), path) for path in paths]
    for collection, path in sorted(collections, key=lambda one: order.index(one[0])):
        with path.open("rb") as file:
            for document in read_documents(file):
                yield from _items(reader, collection, str(path), document, options)


def _collection_of(path: Path) -> Collection:
    """The collection of the first valid document of a file."""
    with path.open("rb") as file:
        first = next((one.content for one in read_documents(file) if one.content is not None), {})
    return recognize(first)


def _items(
    reader: DocumentReader, expected: Collection, file: str, document: ExportDocument, options: ImportOptions
) -> Iterator[ImportItem]:
    place, size_bytes, content = (file, document.line), document.size_bytes, document.content
    if content is None:
        yield _item(expected, place, size_bytes, problem=document.problem)
        return
    collection = recognize(content)
    if collection in SKIPPED:
        yield _item(collection, place, size_bytes, skipped=SKIPPED[collection])
        return
    if options.project is not None and collection is Collection.PLAIN_TASKS:
        content = {"project_id": options.project, **content}
    for part in reader.read(collection, content):
        yield _part_item(collection, place, size_bytes, part, options)
        size_bytes = 0  # counted once for a document


def _part_item(
    collection: Collection, place: tuple[str, int], size_bytes: int, part: Part, options: ImportOptions
) -> ImportItem:
    value, problem = part.value, f"{part.where}: {part.problem}" if part.where else part.problem
    if isinstance(value, ImportedTask) or part.where:
        collection = Collection.TASKS
    if value is None:
        return _item(collection, place, size_bytes, problem=problem)
    if options.project not in (None, value.project_id):
        return _item(collection, place, size_bytes, skipped=OTHER_PROJECT)
    if not isinstance(value, ExportedKey):
        return _item(collection, place, size_bytes, value=value)
    if options.encryption_key is None:
        return _item(collection, place, size_bytes, skipped=NO_ENCRYPTION_KEY)
    try:
        secret = older_keys.decrypt_key(value.key, options.encryption_key)
    except ValueError as error:
        return _item(collection, place, size_bytes, problem=describe(error))
    key = OlderKey(name=value.name, secret=secret, project=value.project_id, is_active=value.is_active)
    return _item(collection, place, size_bytes, value=key)


def _item(collection: Collection, place: tuple[str, int], size_bytes: int, **rest: object) -> ImportItem:
    file, line = place
    collection = Collection.TASKS if collection is Collection.PLAIN_TASKS else collection
    return ImportItem(collection=collection, file=file, line=line, size_bytes=size_bytes, **rest)  # type: ignore[arg-type]


async def import_items(
    db: Db,
    items: Iterable[ImportItem],
    options: ImportOptions,
    importer: Importer,
    on_progress: Callable[[ImportReport], None] = lambda _: None,
) -> ImportReport:
    """Store the items in batches, and report progress after each."""
    report = ImportReport()
    for batch in _batches(items):
        for item in batch:
            mine = report.of(item.collection)
            mine.read += 1
            mine.bad += bool(item.problem)
            if item.skipped:
                mine.skipped[item.skipped] += 1
        report.add(await _store(db, batch, options, importer))
        on_progress(report)
    return report


class _RolledBack(Exception):
    """Ends the transaction of a dry run."""


async def _store(db: Db, batch: Sequence[ImportItem], options: ImportOptions, importer: Importer) -> Tally:
    tally = Tally()
    with suppress(_RolledBack):
        async with db.tx(actor=importer.by) as tx:
            tally = await _store_values(tx, batch, options, importer)
            if options.dry_run:
                raise _RolledBack
    return tally


async def _store_values(tx: Tx, batch: Sequence[ImportItem], options: ImportOptions, importer: Importer) -> Tally:
    values = [item.value for item in batch if item.value is not None]
    tally = await import_tasks.store_batch(tx, [one for one in values if not isinstance(one, OlderKey)], importer)
    for one in values:
        if isinstance(one, OlderKey):
            is_new = await older_keys.store_key(tx, one, scope=options.key_scope, by=importer.by)
            tally[Collection.KEYS, CREATED if is_new else EXISTS] += 1
    return tally


def _batches(items: Iterable[ImportItem]) -> Iterator[list[ImportItem]]:
    """Batches of bounded size. A queue begins one if the last is half full, so that it is not split needlessly."""
    batch: list[ImportItem] = []
    size_bytes = 0
    for item in items:
        if isinstance(item.value, ImportedQueue) and len(batch) > BATCH_ITEMS // 2:
            yield batch
            batch, size_bytes = [], 0
        batch.append(item)
        size_bytes += item.size_bytes
        if len(batch) >= BATCH_ITEMS or size_bytes >= BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch
