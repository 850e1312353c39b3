"""Only `kernel/dialect` knows PostgreSQL from SQLite; statements elsewhere are written once."""

import re

from tests.checks import tree

HOME = "kernel/dialect/"
FROZEN = "kernel/migrations/versions/"  # history, which is not rewritten
NOT_YET = {"kernel/db.py", "kernel/runstate.py"}
ASKS = re.compile(r"on_postgres|is_postgres|\.dialect\.name|\bdialect\.name|database_name\s*[!=]=")
SPELLS = re.compile(r"dialects(\.\w+)? import (postgresql|sqlite)\b|dialects\.(postgresql|sqlite) import insert")


def test_no_other_file_asks_which_database_it_is():
    asking = []
    for path in tree.python_files("src"):
        name = path.relative_to(tree.SRC).as_posix()
        if name.startswith((HOME, FROZEN)) or name in NOT_YET:
            continue
        text = path.read_text()
        asking += [f"{name}: {found.group()}" for found in (*ASKS.finditer(text), *SPELLS.finditer(text))]
    assert asking == []


def test_the_check_finds_what_it_looks_for():
    asked = {ASKS.search(path.read_text()) is not None for path in (tree.SRC / HOME).glob("*.py")}
    assert True in asked
