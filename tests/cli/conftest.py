"""Restore what commands change in the process that runs them."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Commands raise the levels of these loggers, and fixtures of a module run commands before its first test."""
    yield
    for name in ("penstock", "penstock.etl.stages"):
        logging.getLogger(name).setLevel(logging.NOTSET)
