"""The command line does not speak of HTTP: an error that a command can meet has a hint for the terminal."""

import re

from penstock.kernel.errors import PenstockError
from tests.checks.test_errors_are_documented import coded_errors

OF_HTTP = re.compile(r"/api/|X-API-Key|[?]\w+=|Idempotency-Key|\b(GET|POST|PUT|PATCH|DELETE) |Authorization|setupToken")
# What only a request meets: its credentials, its body, its routes.
ONLY_HTTP = (
    "penstock.kernel.http.",
    "penstock.web.",
    "penstock.tasks.",
    "penstock.notify.",
    "penstock.kernel.idempotency",
)
OF_CREDENTIALS = {"InitRefused", "NoCredential", "TwoCredentials", "NotALogin", "Unauthenticated"}


def is_met_by_commands(error: type[PenstockError]) -> bool:
    return not error.__module__.startswith(ONLY_HTTP) and error.__name__ not in OF_CREDENTIALS


def test_a_hint_about_http_has_one_for_the_terminal_too():
    missing = [
        error.__name__
        for error in coded_errors()
        if is_met_by_commands(error) and OF_HTTP.search(error.hint) and not error.terminal_hint
    ]
    assert not missing


def test_no_hint_of_the_terminal_speaks_of_http():
    assert not [error.__name__ for error in coded_errors() if OF_HTTP.search(error.terminal_hint)]
