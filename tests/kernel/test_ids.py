"""What `ids.py` promises."""

import re
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel import ids as ids_module
from penstock.kernel.clock import ManualClock
from penstock.kernel.ids import TimeIds, new_token

START = datetime(2026, 1, 1, tzinfo=UTC)
# Most steps stay within a millisecond; some go back, as a machine's clock does when it is set right.
steps = st.lists(st.one_of(st.just(0.0), st.floats(-5, 5), st.floats(0, 0.002)), max_size=50)


def test_an_id_has_its_prefix_its_millisecond_and_a_tail():
    made = TimeIds(ManualClock(START)).new("job")
    assert re.fullmatch(r"job_[0-9a-f]{28}", made)
    assert int(made[4:16], 16) == START.timestamp() * 1000


@given(steps)
def test_ids_of_one_maker_grow_whatever_the_clock_does(moves: list[float]):
    clock = ManualClock(START)
    maker = TimeIds(clock)
    made = [maker.new("x")]
    for seconds in moves:
        clock.advance(seconds=seconds)
        made.append(maker.new("x"))
    assert made == sorted(set(made))


def test_ids_grow_when_the_tail_of_a_millisecond_is_used_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ids_module, "TAIL_BITS", ids_module.STEP_BITS + 1)
    maker = TimeIds(ManualClock(START))
    made = [maker.new("x") for _ in range(1000)]
    assert made == sorted(set(made))
    assert {len(one) for one in made} == {len("x_") + 28}


def test_ids_of_two_makers_at_one_moment_do_not_meet():
    clock = ManualClock(START)
    one, other = TimeIds(clock), TimeIds(clock)
    assert {one.new("x") for _ in range(5000)}.isdisjoint({other.new("x") for _ in range(5000)})


def test_a_later_maker_makes_larger_ids():
    clock = ManualClock(START)
    earlier = [TimeIds(clock).new("x") for _ in range(100)]
    clock.advance(seconds=0.001)
    assert max(earlier) < min(TimeIds(clock).new("x") for _ in range(100))


def test_the_next_id_cannot_be_had_by_adding_one():
    maker = TimeIds(ManualClock(START))
    tails = [int(maker.new("x")[14:], 16) for _ in range(200)]
    gaps = [after - before for before, after in pairwise(tails)]
    assert len(set(gaps)) > 100


def test_a_token_is_128_bits_and_never_the_same():
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(re.fullmatch(r"[0-9a-f]{32}", token) for token in tokens)
