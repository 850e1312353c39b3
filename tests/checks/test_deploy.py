"""The examples in deploy/ fit the product: the settings they name exist, and their timeouts are those it needs."""

import re
from pathlib import Path

from penstock.settings import describe, load
from tests.checks import tree

DEPLOY = tree.ROOT / "deploy"
NAMES = re.compile(r"\b(?:PENSTOCK|PULL|ETL|LLM|MINERU|AWS)_[A-Z_]+\b")
KEEP_ALIVE_SECONDS = 30  # web/server.py closes a connection that is silent for longer


def number(text: str, pattern: str) -> int:
    """The number that a directive has in a file."""
    found = re.search(pattern, text)
    assert found, pattern
    return int(found[1])


def read_settings(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_every_setting_that_an_example_names_exists():
    known = {setting.env for setting in describe()}
    named = {name for path in DEPLOY.rglob("*") if path.is_file() for name in NAMES.findall(path.read_text())}
    assert named
    assert named <= known, named - known


def test_the_environment_of_the_units_is_accepted():
    settings = load(read_settings(DEPLOY / "systemd" / "penstock.env"))
    assert settings.drain_seconds > 0
    for unit in (DEPLOY / "systemd").glob("*.service"):
        stop = number(unit.read_text(), r"TimeoutStopSec=(\d+)")
        assert stop >= settings.drain_seconds + settings.grace_seconds + 10, unit.name
        assert "KillMode=mixed" in unit.read_text()  # children of the sandbox end with their parent, not before it


def test_the_timeouts_of_the_proxy_fit_those_of_the_server():
    nginx, settings = (DEPLOY / "nginx.conf").read_text(), load({})
    assert number(nginx, r"keepalive_timeout (\d+)s;") < KEEP_ALIVE_SECONDS
    assert number(nginx, r"proxy_read_timeout (\d+)s;") > settings.pull_wait_seconds
    assert number(nginx, r"client_max_body_size (\d+)m;") * 1024 * 1024 > settings.body_bytes
    assert "proxy_buffering off;" in nginx.partition("location = /api/v1/events")[2].partition("}")[0]
    assert "proxy_request_buffering off;" in nginx.partition("location = /api/v1/etl/upload_and_submit")[2]
