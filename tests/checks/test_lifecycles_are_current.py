"""The lifecycle page shows every state machine as it is in the code."""

from typing import Any

from penstock.kernel.machine import Machine
from tests.checks import tree


def machines() -> list[Machine[Any]]:
    """Every machine that a module of the package holds by name, each once."""
    found = {id(value): value for module in tree.modules() for value in vars(module).values() if _is_machine(value)}
    return list(found.values())


def _is_machine(value: object) -> bool:
    return isinstance(value, Machine)


def lifecycles() -> str:
    page = tree.REFERENCE / "lifecycles.md"
    return page.read_text(encoding="utf-8") if page.exists() else ""


def test_every_machine_is_on_the_page_word_for_word():
    page = lifecycles()
    for machine in machines():
        assert machine.page() in page, f"put this into docs/reference/lifecycles.md:\n\n{machine.page()}"


def test_the_page_shows_no_machine_that_is_gone():
    assert lifecycles().count("stateDiagram-v2") == len(machines())
