"""Every message between modules is documented."""

import dataclasses
import importlib.util

from tests.checks import tree


def message_names() -> set[str]:
    """All message classes."""
    if importlib.util.find_spec("penstock.messages") is None:
        return set()
    module = importlib.import_module("penstock.messages")
    return {
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.__name__
    }


def documented_names() -> set[str]:
    page = tree.REFERENCE / "messages.md"
    return {row[0] for row in tree.rows(page.read_text(encoding="utf-8"))} if page.exists() else set()


def test_every_message_is_documented():
    missing = message_names() - documented_names()
    assert not missing, f"missing in the table of docs/reference/messages.md: {missing}"


def test_the_page_names_no_message_that_does_not_exist():
    invented = documented_names() - message_names()
    assert not invented, f"docs/reference/messages.md names what does not exist: {invented}"
