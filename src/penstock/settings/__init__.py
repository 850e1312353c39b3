"""Every setting, read from the environment once.

`settings.py`, `etl.py`, `gateway.py` and `models.py` declare the settings, `field.py` parses one value, and
`environment.py` reads them all. Everything else receives its settings from `wiring/`. `docs/reference/settings.md`
lists the settings; a test compares the two.
"""

from penstock.settings.environment import SettingDescription, child_environment, describe, load, unknown
from penstock.settings.etl import EtlSettings
from penstock.settings.field import BadSetting
from penstock.settings.gateway import GatewaySettings
from penstock.settings.models import LlmSettings, MineruSettings
from penstock.settings.settings import Settings

__all__ = [
    "BadSetting",
    "EtlSettings",
    "GatewaySettings",
    "LlmSettings",
    "MineruSettings",
    "SettingDescription",
    "Settings",
    "child_environment",
    "describe",
    "load",
    "unknown",
]
