"""`penstock etl`: turn documents into markdown and JSON from the terminal.

The commands work on the database directly, with the rights of the first user: no server has to run. Results go to
standard output; progress and notes go to standard error. `commands.py` defines the options and imports the rest when a
command runs.
"""

from penstock.cli.etl.commands import app

__all__ = ["app"]
