import asyncio
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.circuit_breaker import CircuitBreaker, CircuitBreakerOpen
from penstock.kernel.clock import ManualClock

REST_SECONDS = 5.0


class Away(Exception):
    """What says that the other side is gone."""


@pytest.fixture
def breaker(clock: ManualClock) -> CircuitBreaker:
    return CircuitBreaker("mill", clock, failure_threshold=3, reset_seconds=REST_SECONDS)


def fail(breaker: CircuitBreaker, reason: str = "no water", times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(Away), breaker.guard(Away):
            raise Away(reason)


def succeed(breaker: CircuitBreaker) -> None:
    with breaker.guard(Away):
        pass


def is_refused(breaker: CircuitBreaker) -> bool:
    try:
        succeed(breaker)
    except CircuitBreakerOpen:
        return True
    return False


class TestOpening:
    def test_it_opens_after_so_many_failures_and_says_why(self, breaker: CircuitBreaker):
        fail(breaker, times=2)
        assert (breaker.open, breaker.reason) == (False, "")
        fail(breaker, "the weir broke")
        assert (breaker.open, breaker.reason) == (True, "the weir broke")
        with pytest.raises(CircuitBreakerOpen, match=r"mill is not called .* the weir broke") as caught:
            succeed(breaker)
        assert (caught.value.internal_outage, caught.value.retryable) == (True, True)

    def test_only_failures_in_a_row_count(self, breaker: CircuitBreaker):
        for _ in range(5):
            fail(breaker, times=2)
            succeed(breaker)
        assert not breaker.open

    def test_another_error_is_an_answer(self, breaker: CircuitBreaker):
        fail(breaker, times=2)
        with pytest.raises(LookupError), breaker.guard(Away):
            raise LookupError
        fail(breaker, times=2)
        assert not breaker.open

    async def test_being_cancelled_says_nothing_either_way(self, breaker: CircuitBreaker):
        fail(breaker, times=2)
        with pytest.raises(asyncio.CancelledError), breaker.guard(Away):
            raise asyncio.CancelledError
        assert not breaker.open
        fail(breaker)
        assert breaker.open

    def test_the_reason_is_put_in_words_that_may_be_shown(self, breaker: CircuitBreaker):
        for _ in range(3):
            with pytest.raises(Away), breaker.guard(Away, describe=lambda _: "it is away"):
                raise Away("s3cret")
        assert breaker.reason == "it is away"


class TestResting:
    def test_nothing_is_tried_until_the_rest_is_over(self, breaker: CircuitBreaker, clock: ManualClock):
        fail(breaker, times=3)
        clock.advance(seconds=REST_SECONDS - 0.001)
        assert is_refused(breaker)
        clock.advance(seconds=0.001)
        assert not is_refused(breaker)
        assert (breaker.open, breaker.reason) == (False, "")

    def test_then_one_tries_alone_and_success_lets_everyone_in(self, breaker: CircuitBreaker, clock: ManualClock):
        fail(breaker, times=3)
        clock.advance(seconds=REST_SECONDS)
        with breaker.guard(Away):
            assert breaker.open
            assert is_refused(breaker)
        assert not is_refused(breaker)
        fail(breaker, times=2)
        assert not breaker.open

    def test_its_failure_begins_the_rest_anew(self, breaker: CircuitBreaker, clock: ManualClock):
        fail(breaker, times=3)
        clock.advance(seconds=REST_SECONDS)
        slow = breaker.guard(Away)
        slow.__enter__()
        clock.advance(seconds=2)
        assert not slow.__exit__(Away, Away("still no water"), None)
        clock.advance(seconds=REST_SECONDS - 0.001)
        assert is_refused(breaker)
        assert breaker.reason == "still no water"
        clock.advance(seconds=0.001)
        assert not is_refused(breaker)

    @pytest.mark.parametrize("ending", [asyncio.CancelledError, KeyboardInterrupt])
    def test_one_that_was_cancelled_lets_another_try_after_a_rest(
        self, breaker: CircuitBreaker, clock: ManualClock, ending: type[BaseException]
    ):
        fail(breaker, times=3)
        clock.advance(seconds=REST_SECONDS)
        with pytest.raises(ending), breaker.guard(Away):
            raise ending
        assert is_refused(breaker)
        clock.advance(seconds=REST_SECONDS)
        assert not is_refused(breaker)

    def test_one_that_hangs_does_not_keep_the_others_out_for_ever(self, breaker: CircuitBreaker, clock: ManualClock):
        fail(breaker, times=3)
        clock.advance(seconds=REST_SECONDS)
        with breaker.guard(Away):
            clock.advance(seconds=REST_SECONDS)
            assert not is_refused(breaker)

    def test_tries_that_began_before_and_fail_late_do_not_make_the_rest_longer(
        self, breaker: CircuitBreaker, clock: ManualClock
    ):
        late = breaker.guard(Away)
        late.__enter__()
        fail(breaker, times=3)
        clock.advance(seconds=REST_SECONDS - 1)
        assert not late.__exit__(Away, Away("late"), None)
        clock.advance(seconds=1)
        assert not is_refused(breaker)

    def test_a_clock_that_was_put_back_does_not_make_the_rest_longer(self, breaker: CircuitBreaker, clock: ManualClock):
        fail(breaker, times=3)
        clock.advance(seconds=-3600)
        assert not is_refused(breaker)


@given(st.lists(st.tuples(st.sampled_from(["succeed", "fail", "wait"]), st.floats(0, 2 * REST_SECONDS)), max_size=60))
def test_it_refuses_only_while_it_rests_and_lets_at_most_one_failure_through_per_rest(steps: list[tuple[str, float]]):
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    breaker = CircuitBreaker("mill", clock, failure_threshold=3, reset_seconds=REST_SECONDS)
    failed_at: list[datetime] = []
    for what, seconds in steps:
        clock.advance(seconds=seconds if what == "wait" else 0)
        try:
            with breaker.guard(Away):
                _do(what)
            failed_at.clear()
        except Away:
            failed_at.append(clock.now())
        except CircuitBreakerOpen:
            assert len(failed_at) >= 3
            assert (clock.now() - failed_at[-1]).total_seconds() < REST_SECONDS
    assert breaker.open == (len(failed_at) >= 3)
    gaps = [(later - before).total_seconds() for before, later in pairwise(failed_at[2:])]
    assert all(gap >= REST_SECONDS for gap in gaps)


def _do(what: str) -> None:
    if what == "fail":
        raise Away
