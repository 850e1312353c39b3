"""Generates reference pages from the code: `make docs` writes them, the checks compare them."""

import json

from bench.__main__ import NAMES, RESULTS
from penstock.kernel.errors import PenstockError
from penstock.settings import describe
from tests.checks import tree
from tests.checks.test_errors_are_documented import coded_errors
from tests.checks.test_lifecycles_are_current import machines

SETTINGS = """# Settings

Every setting is an environment variable, read once at start. An empty variable counts as not set.

| variable | default | meaning |
|---|---|---|
"""
ERRORS = """# Errors

Every error has a stable code. Over HTTP an error is `application/problem+json` with `status`, `code`, `detail`,
`retryable` and `hint`. The nine kinds of errors are at the top of `kernel/errors.py`.

| code | status | retryable | meaning |
|---|---|---|---|
"""
FIGURES_HEAD = """| benchmark | ours | reference | unit | ratio | target |
|---|---|---|---|---|---|
"""
LIFECYCLES = """# Lifecycles

The states of jobs, messages, tasks and deliveries, generated from the state machines in the code. Every transition of
a job is recorded in `state_transitions`, of a task in `task_pull` and `task_change`, with actor and time.

"""


def settings_page() -> str:
    """docs/reference/settings.md."""
    return SETTINGS + "".join(f"| `{known.env}` | `{known.default}` | {known.doc} |\n" for known in describe())


def errors_page() -> str:
    """docs/reference/errors.md."""
    errors = sorted(coded_errors(), key=lambda error: (error.status, error.code))
    return ERRORS + "".join(map(_error_row, errors))


def _error_row(error: type[PenstockError]) -> str:
    again = "yes" if error.retryable else "no"
    meaning = (error.__doc__ or error.message).splitlines()[0]
    return f"| `{error.code}` | {error.status} | {again} | {meaning} |\n"


def lifecycles_page() -> str:
    """docs/reference/lifecycles.md."""
    return LIFECYCLES + "\n".join(machine.page() for machine in sorted(machines(), key=lambda machine: machine.name))


def benchmarks_page() -> str:
    """docs/reference/benchmarks.md: its text, and the table of the latest results."""
    text = (tree.REFERENCE / "benchmarks.md").read_text(encoding="utf-8")
    rows = [row for name in NAMES if (path := RESULTS / f"{name}.json").is_file() for row in _figures(path.read_text())]
    head, rest = text.split(FIGURES_HEAD)
    _, _, notes = rest.partition("\n\n")
    return f"{head}{FIGURES_HEAD}{''.join(rows)}\n{notes}"


def _figures(result: str) -> list[str]:
    return [
        f"| {found['what']} | {found['ours']:,.4g} | {found['reference']:,.4g} | {found['unit']} "
        f"| {found['ratio']:.2f} ({found['spread'][0]:.2f} to {found['spread'][1]:.2f}) | {_target(found)} |\n"
        for found in json.loads(result)["findings"]
    ]


def _target(found: dict[str, float | None]) -> str:
    return f"≥ {found['at_least']:g}" if found["at_least"] is not None else f"≤ {found['at_most']:g}"


PAGES = {
    "benchmarks.md": benchmarks_page,
    "settings.md": settings_page,
    "errors.md": errors_page,
    "lifecycles.md": lifecycles_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (tree.REFERENCE / name).write_text(page(), encoding="utf-8")
