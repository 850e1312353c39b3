"""The OCR engine itself, on pages whose text is known: how many letters are wrong."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.adapters.local_reader import ReaderLimits, engine_sandbox
from penstock.documents import rapid
from penstock.documents.ground import Page
from penstock.documents.rapid import OcrModelsMissing, Seen, read_frame
from penstock.kernel.sandbox.call import Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCANS = Path(__file__).parents[1] / "fixtures" / "documents" / "scans"
MOST_PIXELS = 50_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def accurate() -> AsyncIterator[Sandbox]:
    async with engine_sandbox("accurate") as engine:
        yield engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fast() -> AsyncIterator[Sandbox]:
    async with engine_sandbox("fast") as engine:
        yield engine


async def seen(engine: Sandbox, name: str, profile: str) -> Page:
    file = SCANS / f"{name}.jpg"
    answer = await engine.run(read_frame, 1, MOST_PIXELS, profile, file=file, limits=ReaderLimits().seeing(0))
    assert isinstance(answer, Seen)
    return answer.page


def wrong_letters(name: str, page: Page) -> float:
    """How many of a hundred letters must be changed to get what stands on the page."""
    between = " " if name == "english" else ""
    said = between.join("\n".join(span.text for span in page.spans).split())
    truth = between.join((SCANS / f"{name}.txt").read_text().split())
    return 100 * distance(truth, said) / len(truth)


def distance(one: str, other: str) -> int:
    before = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        row = [at]
        for place, rival in enumerate(other, 1):
            row.append(min(before[place] + 1, row[-1] + 1, before[place - 1] + (letter != rival)))
        before = row
    return before[-1]


class TestTheAccurateProfile:
    async def test_reads_english_with_one_letter_in_a_thousand_wrong_at_most(self, accurate: Sandbox):
        assert wrong_letters("english", await seen(accurate, "english", "accurate")) <= 0.1

    async def test_reads_chinese_with_three_letters_in_a_thousand_wrong_at_most(self, accurate: Sandbox):
        assert wrong_letters("chinese", await seen(accurate, "chinese", "accurate")) <= 0.3


class TestTheFastProfile:
    @pytest.mark.parametrize(("name", "most"), [("english", 0.2), ("chinese", 0.3), ("mixed", 2.0)])
    async def test_is_nearly_as_good(self, fast: Sandbox, name: str, most: float):
        page = await seen(fast, name, "fast")
        assert wrong_letters(name, page) <= most
        assert page.confidence is not None
        assert page.confidence > 0.9

    async def test_gives_each_line_the_box_where_it_stands(self, fast: Sandbox):
        page = await seen(fast, "english", "fast")
        boxes = [span.box for span in page.spans if span.box]
        assert len(boxes) == len((SCANS / "english.txt").read_text().splitlines())
        assert all(60 < box[0] < 100 and box[2] < page.width for box in boxes)
        assert boxes == sorted(boxes, key=lambda box: box[1])


class TestTheModels:
    async def test_are_found_without_being_loaded(self):
        assert rapid.weights("fast").keys() >= {"Det.model_path", "Rec.model_path", "Rec.rec_keys_path"}
        assert rapid.weights("accurate").keys() == {"Det.model_path", "Rec.model_path"}

    async def test_that_are_missing_are_named_with_a_way_out(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(OcrModelsMissing, match="fast") as missing:
            rapid.weights("fast")
        assert "penstock[fast-ocr]" in missing.value.hint
        assert not missing.value.retryable
