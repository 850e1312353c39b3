"""Generates reference pages from the code: `make docs` writes them, the checks compare them."""

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

Every error has a stable code. Over HTTP it is `application/problem+json` with `status`, `code`, `detail`, `retryable`
and `hint`. The nine kinds of errors are at the top of `kernel/errors.py`.

| code | status | retryable | meaning |
|---|---|---|---|
"""
LIFECYCLES = """# Lifecycles

The states of jobs, messages, tasks and deliveries, generated from the state machines in the code. Every transition of
a job is recorded in `state_transitions` with actor and time.

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


PAGES = {"settings.md": settings_page, "errors.md": errors_page, "lifecycles.md": lifecycles_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (tree.REFERENCE / name).write_text(page(), encoding="utf-8")
