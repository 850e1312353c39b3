"""Every setting, read from the environment once.

`house.py`, `etl.py` and `models.py` say what can be set, `entry.py` how one setting is read, `reading.py` reads them
all. Everything else is given what it needs by `wiring/`. `docs/reference/settings.md` lists what is here; a test
compares the two.
"""

from penstock.settings.entry import BadSetting
from penstock.settings.etl import EtlSettings
from penstock.settings.house import Settings
from penstock.settings.models import LlmSettings, MineruSettings
from penstock.settings.reading import Description, child_environment, describe, load, unknown

__all__ = [
    "BadSetting",
    "Description",
    "EtlSettings",
    "LlmSettings",
    "MineruSettings",
    "Settings",
    "child_environment",
    "describe",
    "load",
    "unknown",
]
