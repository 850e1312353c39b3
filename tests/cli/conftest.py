"""Restore what commands change in the process that runs them."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def levels_of_logs() -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in ("penstock", "penstock.etl.advance")}
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
