"""Alembic's entry point: runs the migrations on the given connection, inside the caller's transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True)
context.run_migrations()
