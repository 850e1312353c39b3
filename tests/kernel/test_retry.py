"""What `retry.py` promises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from penstock.kernel.retry import Backoff, wait_before_retry, worth_retrying

FINAL = [
    Invalid(reason="x"),
    Unauthenticated(),
    Refused(reason="x"),
    NotFound(thing="task", id="1"),
    Conflict(reason="x"),
    Gone(thing="task", id="1"),
    TooLarge(reason="x"),
    PenstockError(),
]
PASSING = [
    Unavailable(reason="x"),
    DiskFull(what="x"),
    TooMany(wait_seconds=1),
    RuntimeError("a bug"),
    OSError("cut"),
    TimeoutError(),
]

chances = st.floats(0, 1, exclude_max=True)
attempts = st.integers(1, 10_000)


class WorthAHead(Conflict):
    """A conflict that passes: the class says otherwise than its kind."""

    retryable = True


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    seconds = st.floats(0.001, 10_000)
    return Backoff(first_seconds=draw(seconds), max_seconds=draw(seconds), jitter=draw(st.floats(0, 1)))


@given(backoffs(), attempts, chances)
def test_a_wait_stays_within_the_jitter_around_its_middle(backoff: Backoff, attempt: int, chance: float):
    middle = min(backoff.max_seconds, backoff.first_seconds * 2.0 ** min(attempt - 1, 100))
    wait = backoff.wait_seconds(attempt, chance=chance)
    assert wait >= 0
    assert middle * (1 - backoff.jitter) == pytest.approx(wait) or wait > middle * (1 - backoff.jitter)
    assert wait == pytest.approx(middle * (1 + backoff.jitter)) or wait < middle * (1 + backoff.jitter)


def test_waits_double_up_to_the_cap():
    backoff = Backoff(first_seconds=1, max_seconds=10)
    assert [backoff.wait_seconds(attempt, chance=0.5) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@given(backoffs(), attempts, chances)
def test_a_later_attempt_never_waits_less_at_the_same_chance(backoff: Backoff, attempt: int, chance: float):
    assert backoff.wait_seconds(attempt + 1, chance=chance) >= backoff.wait_seconds(attempt, chance=chance)


@pytest.mark.parametrize("attempt", [0, -3])
def test_no_attempt_yet_waits_like_the_first(attempt: int):
    assert Backoff().wait_seconds(attempt, chance=0.5) == Backoff().wait_seconds(1, chance=0.5)


def test_a_million_attempts_wait_no_longer_than_the_cap_and_its_jitter():
    assert Backoff(max_seconds=300).wait_seconds(1_000_000, chance=0.999999) < 360


def test_chance_spreads_a_crowd_over_the_whole_jitter():
    waits = [Backoff(first_seconds=100).wait_seconds(1) for _ in range(1000)]
    assert 80 <= min(waits) < 90
    assert 110 < max(waits) <= 120
    assert len(set(waits)) > 900


@pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
def test_what_cannot_succeed_later_is_not_retried(error: Exception):
    assert not worth_retrying(error)


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_what_may_pass_is_retried(error: Exception):
    assert worth_retrying(error)


def test_a_class_may_say_otherwise_than_its_kind():
    assert worth_retrying(WorthAHead(reason="x"))


def test_too_many_waits_at_least_as_long_as_it_says():
    backoff = Backoff(first_seconds=1, max_seconds=300)
    assert wait_before_retry(TooMany(wait_seconds=1000), attempt=1, backoff=backoff) >= 1000


def test_a_crowd_that_is_told_the_same_wait_does_not_come_back_together():
    waits = {wait_before_retry(TooMany(wait_seconds=1000), attempt=1, backoff=Backoff()) for _ in range(20)}
    assert len(waits) > 1
    assert max(waits) <= 1200


def test_too_many_again_and_again_waits_longer_than_it_says():
    backoff = Backoff(first_seconds=1, max_seconds=300)
    assert wait_before_retry(TooMany(wait_seconds=0.1), attempt=20, backoff=backoff) >= 240


@given(attempts)
def test_other_errors_wait_by_the_backoff(attempt: int):
    backoff = Backoff(first_seconds=2, jitter=0)
    wait = wait_before_retry(Unavailable(reason="x"), attempt=attempt, backoff=backoff)
    assert wait == backoff.wait_seconds(attempt, chance=0.5)
