"""The OCR engine itself, on pages whose text is known: how many letters are wrong."""

from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy
import pytest
import pytest_asyncio

from penstock.adapters.local_reader import ReaderLimits, engine_sandbox
from penstock.documents.ocr import engine
from penstock.documents.ocr.engine import OcrModelsMissing, Seen, read_image_page
from penstock.documents.pages import Page
from penstock.kernel.sandbox.call import Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCANS = Path(__file__).parents[2] / "fixtures" / "documents" / "scans"
MAX_PIXELS = 50_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def accurate() -> AsyncIterator[Sandbox]:
    async with engine_sandbox("accurate") as engine:
        yield engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fast() -> AsyncIterator[Sandbox]:
    async with engine_sandbox("fast") as engine:
        yield engine


def numbers_of_both() -> tuple[float, bool, bool]:
    """What the models get of a picture by ours and by the engine's own way: how far apart, and which is in order."""
    from rapidocr.ch_ppocr_det.utils import DetPreProcess

    picture = numpy.arange(300 * 200 * 3, dtype=numpy.uint32).astype(numpy.uint8).reshape(300, 200, 3)
    finder: Any = engine.load_engine("fast").text_det
    ours = finder.get_preprocess()(picture)
    theirs: Any = DetPreProcess(engine.DETECTION_SIDE, "max", finder.mean, finder.std)(picture)
    return float(abs(ours - theirs).max()), ours.flags.c_contiguous, theirs.flags.c_contiguous


async def test_the_models_get_the_same_numbers_as_from_the_engine_itself_and_in_their_order():
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as elsewhere:
        apart, is_in_order, was_in_order = elsewhere.submit(numbers_of_both).result()
    assert apart < 1e-5
    assert (is_in_order, was_in_order) == (True, False)


async def seen(engine: Sandbox, name: str, profile: str) -> Page:
    file = SCANS / f"{name}.jpg"
    answer = await engine.run(read_image_page, 1, MAX_PIXELS, profile, file=file, limits=ReaderLimits().seeing(0))
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
        assert engine.model_files("fast").keys() >= {"Det.model_path", "Rec.model_path", "Rec.rec_keys_path"}
        assert engine.model_files("accurate").keys() == {"Det.model_path", "Rec.model_path"}

    async def test_that_are_missing_are_named_with_a_way_out(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(OcrModelsMissing, match="fast") as missing:
            engine.model_files("fast")
        assert "penstock[fast-ocr]" in missing.value.hint
        assert not missing.value.retryable
