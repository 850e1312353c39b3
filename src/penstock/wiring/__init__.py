"""The only place that builds things: settings in, a `Runtime` out.

`backends.py` builds the backends that the settings choose: SQLite or PostgreSQL, disk or S3, SQL or Redis.
`modules.py` lists the modules: each is one `ModuleSpec`, which says what it contributes.
`runtime.py` puts it together: a `Runtime` is everything one process needs, and `serve` and `work` differ only in what
they run of it.
"""

from penstock.wiring.backends import open_database
from penstock.wiring.modules import MODULES, ModuleEntry, migration_folders
from penstock.wiring.runtime import Runtime, open_runtime

__all__ = ["MODULES", "ModuleEntry", "Runtime", "migration_folders", "open_database", "open_runtime"]
