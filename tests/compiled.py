"""Statements are compiled once per run, not once per test: every test opens its own database, and compiling its
statements again took a fifth of the test time.

SQLAlchemy keeps what it compiled with an engine, under the engine's dialect. Engines of one kind of database, made by
the same code, may share both.
"""

from typing import Any

from penstock.kernel.db import Db

_known: dict[str, Any] = {}  # the first engine of each kind that was connected


def share_compiled(db: Db) -> None:
    """Let the engines of a database use what earlier ones compiled."""
    for engine in {db._writer.sync_engine, db._reader.sync_engine}:
        first: Any = _known.setdefault(engine.name, engine)
        if hasattr(first.dialect, "default_isolation_level"):
            engine.dialect, engine._compiled_cache = first.dialect, first._compiled_cache
        else:  # it was never connected, so its dialect knows nothing of its server yet
            _known[engine.name] = engine
