"""The only place that builds things: settings in, a `Runtime` out.

`engines.py` chooses the engines that the settings ask for: SQLite or PostgreSQL, disk or S3, SQL or Redis.
`modules.py` says which module handles which message, runs which kind of job and has which periodic tasks.
`runtime.py` puts it together: a `Runtime` is everything one process needs, and `serve` and `work` differ only in what
they run of it.
"""

from penstock.wiring.engines import open_database
from penstock.wiring.modules import MODULES
from penstock.wiring.runtime import Runtime, open_runtime

__all__ = ["MODULES", "Runtime", "open_database", "open_runtime"]
