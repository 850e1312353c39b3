"""Alembic's entry: runs the steps on the connection it is given, inside the caller's transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True)
context.run_migrations()
