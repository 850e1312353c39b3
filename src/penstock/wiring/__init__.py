"""The only place that builds things: settings in, a `House` out.

`engines.py` chooses the engines that the settings ask for: SQLite or PostgreSQL, disk or S3, SQL or Redis.
`rooms.py` says which room hears which message, does which kind of job and has which duties; rooms add a line to each.
`house.py` puts it together: a `House` is everything one process needs, and `serve` and `work` differ only in what they
run of it.
"""

from penstock.wiring.engines import open_database
from penstock.wiring.house import House, open_house
from penstock.wiring.rooms import ROOMS

__all__ = ["ROOMS", "House", "open_database", "open_house"]
