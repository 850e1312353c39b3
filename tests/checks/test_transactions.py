"""Transactions are opened at the edge: in routes, workers, commands and the kernel's machinery. Verbs take one."""

import ast
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.checks import tree

OPENERS = {"tx", "read", "autocommit"}
EDGES = {  # `*` also matches `/`
    # what a caller, a job, a message or a timer enters a module through
    "*/api.py",
    "*/api/*",
    "*/worker.py",
    "cli/*",
    "web/*",
    "wiring/*",
    # machinery: it runs what others give it, and the transaction is part of how
    "access/authenticate.py",  # the guard of every route: cached lookups, and the last use of keys in batches
    "adapters/arq_queue/*",
    "kernel/backlog.py",  # positions in the queue, as the port of Redis has them too
    "kernel/hub.py",
    "kernel/lease_renewer.py",
    "kernel/leases.py",
    "kernel/maintenance.py",
    "kernel/metrics.py",
    "kernel/migrations/__init__.py",
    "kernel/processes.py",
    "kernel/rate_limits.py",
    "kernel/relay.py",
    "kernel/runner.py",
    "kernel/runstate.py",
    "kernel/scheduler.py",
    "kernel/sequencer.py",
    "kernel/stages/run_handle.py",
    "kernel/workers.py",
}


def db_names(source: ast.Module) -> set[str]:
    """The names in this file that hold a `Db`: by custom, by annotation, or assigned from one."""
    names = {"db", "_db"}
    for node in ast.walk(source):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None and _is_db(node.annotation):
            names.add(node.arg if isinstance(node, ast.arg) else _last_name(node.target))
    for node in ast.walk(source):
        if isinstance(node, ast.Assign) and _last_name(node.value) in names:
            names.update(map(_last_name, node.targets))
    return names - {""}


def _is_db(annotation: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "Db" for node in ast.walk(annotation))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def opened_at(text: str) -> list[int]:
    """The lines that open a transaction."""
    source = ast.parse(text)
    names = db_names(source)
    return [
        node.lineno
        for node in ast.walk(source)
        if isinstance(node, ast.Attribute) and node.attr in OPENERS and _last_name(node.value) in names
    ]


def is_edge(name: str) -> bool:
    return any(fnmatch(name, edge) for edge in EDGES)


def source_files() -> dict[str, Path]:
    return {path.relative_to(tree.SRC).as_posix(): path for path in tree.python_files("src")}


def openers() -> dict[str, list[int]]:
    """The files outside the edges that open transactions, with the lines."""
    return {
        name: lines
        for name, path in source_files().items()
        if not is_edge(name) and (lines := opened_at(path.read_text(encoding="utf-8")))
    }


def test_only_the_edges_open_transactions():
    found = openers()
    assert not found, "these take `tx` instead:\n" + "\n".join(f"{name}:{lines}" for name, lines in found.items())


def test_every_edge_opens_one():
    """An edge that opens none any more is a gap through which verbs could."""
    opening = [name for name, path in source_files().items() if opened_at(path.read_text(encoding="utf-8"))]
    idle = {edge for edge in EDGES if not any(fnmatch(name, edge) for name in opening)}
    assert not idle, f"remove from EDGES: {sorted(idle)}"


@pytest.mark.parametrize(
    "opening",
    [
        "async def verb(deps):\n    async with deps.db.tx() as tx:\n        pass",
        "async def verb(self):\n    async with self._db.read() as tx:\n        pass",
        "async def verb(stack, db):\n    await stack.enter_async_context(db.autocommit(actor='a'))",
        "async def verb(store: Db):\n    async with store.tx() as tx:\n        pass",
        "async def verb(deps):\n    place = deps.db\n    async with place.tx() as tx:\n        pass",
        "class Verb:\n    def __init__(self, into: 'x', db: Db | None):\n        self._into = db\n\n"
        "    async def run(self):\n        return await in_tx(self._into.tx)",
    ],
)
def test_an_opened_transaction_is_found(opening: str):
    assert opened_at(opening)


@pytest.mark.parametrize(
    "innocent",
    [
        "async def verb(tx):\n    await tx.conn.execute(1)",
        "def load(path):\n    with path.open() as file:\n        return file.read()",
        "async def stage(context):\n    async with context.tx() as tx:\n        pass",
    ],
)
def test_a_verb_that_takes_its_transaction_is_not(innocent: str):
    assert not opened_at(innocent)
