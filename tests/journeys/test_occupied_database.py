"""`penstock migrate` and `serve` on a database with tables of another application: a message, and no traceback."""

import sqlite3
from pathlib import Path

from tests.journeys.command import free_port, run

TABLES = "CREATE TABLE etl_task (id INTEGER PRIMARY KEY); CREATE TABLE etl_rule (rule_id INTEGER PRIMARY KEY)"


def test_migrate_and_serve_say_what_they_found_and_how_to_go_on(tmp_path: Path):
    with sqlite3.connect(tmp_path / "penstock.db") as connection:
        connection.executescript(TABLES)
    connection.close()
    for command in (["migrate"], ["serve", "--port", str(free_port())]):
        ended = run(*command, PENSTOCK_DATA_DIR=str(tmp_path))
        assert ended.returncode == 1
        assert "Names that are taken: etl_rule, etl_task." in ended.stderr
        assert "Use another database, or move these out of the way" in ended.stderr
        assert "Traceback" not in ended.stderr
