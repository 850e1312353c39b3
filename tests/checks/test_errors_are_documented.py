"""Every error code a caller can meet is on its page, once, with its status."""

from collections import Counter

from penstock.kernel.errors import PenstockError
from tests.checks import tree


def coded_errors() -> list[type[PenstockError]]:
    """The errors of the package that have a code of their own, the general one included."""
    tree.modules()
    found: list[type[PenstockError]] = []
    waiting = [PenstockError]
    while waiting:
        error = waiting.pop()
        waiting += error.__subclasses__()
        if "code" in vars(error) and error.__module__.split(".")[0] == "penstock":
            found.append(error)
    return found


def test_every_code_belongs_to_one_error():
    counts = Counter(error.code for error in coded_errors())
    assert not {code: count for code, count in counts.items() if count > 1}


def test_every_error_is_documented_with_its_status():
    documented = {row[0]: row[1] for row in tree.rows(tree.reference("errors.md"))}
    missing = {error.code: error.status for error in coded_errors() if documented.get(error.code) != str(error.status)}
    assert not missing, f"missing in docs/reference/errors.md, or with another status: {missing}"


def test_the_page_names_no_code_that_does_not_exist():
    known = {error.code for error in coded_errors()}
    invented = {row[0] for row in tree.rows(tree.reference("errors.md"))} - known
    assert not invented, f"docs/reference/errors.md names what does not exist: {invented}"
