"""Everything that differs between PostgreSQL and SQLite. Each difference has its reason beside it.

Statements are SQLAlchemy Core and the same for both databases: no other file asks which database it talks to.

- `engines` opens connections and transactions; `sqlite` is the SQLite driver.
- `sql` has the expressions that the databases spell differently; statements are written once on top of it.
- `compiled_statement` runs frequent statements: PostgreSQL's go directly to its driver.
- `bulk` writes many rows: PostgreSQL gets one array per column, SQLite one record per row.
- `select_then_write` claims tasks: one statement on PostgreSQL, several on SQLite.

Column types that mean the same on both databases are in `kernel/columns.py`.
"""
