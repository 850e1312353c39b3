"""What `errors.py` promises: nine kinds, and messages that name the thing."""

import pickle
import re

import pytest

from penstock.kernel import errors
from penstock.kernel.errors import (
    Conflict,
    DiskFull,
    Gone,
    Invalid,
    NotFound,
    PenstockError,
    Refused,
    TooLarge,
    TooMany,
    Unauthenticated,
    Unavailable,
)

KINDS: dict[type[PenstockError], tuple[int, bool]] = {
    Invalid: (400, False),
    Unauthenticated: (401, False),
    Refused: (403, False),
    NotFound: (404, False),
    Conflict: (409, False),
    Gone: (410, False),
    TooLarge: (413, False),
    TooMany: (429, True),
    Unavailable: (503, True),
}


class OffsetMismatch(Conflict):
    """A module's error: a kind with a code, a message of its own, and another view on retrying."""

    code = "OFFSET_MISMATCH"
    message = "The upload stands at byte {stored}; the request began at byte {sent}."
    retryable = True


def test_there_are_nine_kinds():
    kinds = {kind for kind in PenstockError.__subclasses__() if kind.__module__ == errors.__name__}
    assert kinds == set(KINDS)


@pytest.mark.parametrize(("kind", "promise"), KINDS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_kind_decides_status_and_retry(kind: type[PenstockError], promise: tuple[int, bool]):
    assert (kind.status, kind.retryable) == promise
    assert re.fullmatch(r"[A-Z][A-Z_]+", kind.code)


def test_the_tour_at_the_top_draws_every_kind_with_its_status():
    drawn = re.findall(r"[├└]── (\w+) +(\d+)", errors.__doc__ or "")
    assert drawn == [(kind.__name__, str(status)) for kind, (status, _) in KINDS.items()]


def test_codes_differ():
    kinds: list[type[PenstockError]] = [PenstockError, DiskFull, *KINDS]
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(codes)


def test_values_fill_the_message_and_stay_readable():
    error = NotFound(thing="task", id="t_1")
    assert str(error) == "There is no task t_1."
    assert error.values == {"thing": "task", "id": "t_1"}


def test_a_value_is_never_taken_for_a_pattern():
    assert str(Invalid(reason="{reason} {0} {} 100 %s 一")) == "{reason} {0} {} 100 %s 一"


def test_values_the_message_does_not_show_are_kept():
    error = Unauthenticated(key_id="k_1")
    assert str(error) == "The caller could not be authenticated."
    assert error.values["key_id"] == "k_1"


def test_a_module_error_keeps_its_kind_and_says_what_differs():
    error = OffsetMismatch(stored=5, sent=7)
    assert isinstance(error, Conflict)
    assert (error.status, error.code, error.retryable) == (409, "OFFSET_MISMATCH", True)
    assert str(error) == "The upload stands at byte 5; the request began at byte 7."


def test_a_message_without_its_value_fails_where_it_is_raised():
    with pytest.raises(KeyError, match="id"):
        NotFound(thing="task")


@pytest.mark.parametrize(("wait", "said"), [(0.2, 1), (1, 1), (2.5, 3), (59.01, 60)])
def test_too_many_never_asks_to_come_back_too_early(wait: float, said: int):
    error = TooMany(wait_seconds=wait)
    assert str(error) == f"Too many requests; try again in {said} s."
    assert error.wait_seconds == error.values["wait_seconds"] == wait


def test_too_many_takes_more_values_for_a_message_of_its_own():
    class TooManyPulls(TooMany):
        message = "{project} pulls too often; wait {wait_seconds} s."

    assert str(TooManyPulls(wait_seconds=3, project="p1")) == "p1 pulls too often; wait 3 s."


def test_a_full_disk_is_unavailable_and_final():
    assert issubclass(DiskFull, Unavailable)
    assert (DiskFull.status, DiskFull.retryable, DiskFull.internal_outage) == (503, True, True)
    assert "Free some disk space" in DiskFull.hint


@pytest.mark.parametrize("error", [NotFound(thing="job", id="j1"), TooMany(wait_seconds=2.5)])
def test_an_error_can_be_sent_to_another_process(error: PenstockError):
    arrived = pickle.loads(pickle.dumps(error))
    assert (type(arrived), str(arrived), arrived.values) == (type(error), str(error), error.values)


def test_words_of_an_error_can_be_kept_by_every_database():
    words = errors.error_text(ValueError("bad \0 page \ud800" + "x" * 5000))
    assert words.startswith("bad \\0 page \\ud800x")
    assert len(words) < 2100
    assert errors.error_text(ValueError()) == "ValueError"
