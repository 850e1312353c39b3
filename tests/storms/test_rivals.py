"""Eight concurrent claimers race for 20,000 rows; their recorded histories show that no row had two holders."""

from pathlib import Path

import pytest

from tests.storms.rivals import RIVALS, judge, race

ROWS = 20_000


@pytest.mark.timeout(240)
async def test_no_row_is_held_by_two_claimers_at_any_time(db_url: str, tmp_path: Path):
    verdict = await race(db_url, tmp_path, rows=ROWS, seed=7)
    assert verdict.held_by_two == []
    assert verdict.left_over == 0
    assert verdict.settled == ROWS
    assert verdict.settled_twice == 0
    assert verdict.holds > ROWS, "nobody gave anything back: the race was too tame to prove anything"
    assert verdict.claimers_that_settled == RIVALS


def test_the_judge_sees_a_row_that_was_held_by_two(tmp_path: Path):
    (tmp_path / "rival-0.jsonl").write_text('{"ids": ["a"], "since": 1, "end": 3, "how": "settled", "who": "x"}\n')
    (tmp_path / "rival-1.jsonl").write_text('{"ids": ["a"], "since": 2, "end": 4, "how": "settled", "who": "y"}\n')
    verdict = judge(tmp_path, rows=1, left_over=0)
    assert len(verdict.held_by_two) == 1
    assert verdict.settled_twice == 1
