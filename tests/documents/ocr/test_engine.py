"""The OCR engine on pages with known text: character error rate, bounding boxes, rotated pages."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest
import pytest_asyncio
from PIL import Image

from penstock.adapters.local_reader import ReaderLimits, engine_sandbox
from penstock.adapters.local_reader.reader import ENGINE, FONTS
from penstock.documents.ocr import engine
from penstock.documents.ocr.engine import OcrModelsMissing, RecognizedPage, read_image_page
from penstock.documents.ocr.orientation import PageOrientation
from penstock.documents.pages import Page
from penstock.kernel.sandbox.call import Sandbox, Warmup

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCANS = Path(__file__).parents[2] / "fixtures" / "documents" / "scans"
MAX_PIXELS = 50_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def accurate() -> AsyncIterator[Sandbox]:
    async with engine_sandbox("accurate") as engine:
        yield engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fast() -> AsyncIterator[Sandbox]:
    warmup = Warmup(function=engine.load_engine, arguments=("fast",))
    async with Sandbox(preload=(*ENGINE, __name__), readable=FONTS, warmup=warmup) as sandbox:
        yield sandbox


class Preprocessed(msgspec.Struct, frozen=True):
    """How our preprocessing of an image compares with that of the engine."""

    difference: float
    is_contiguous: bool
    was_contiguous: bool


def preprocess_both_ways() -> Preprocessed:
    """Runs in the sandbox, where the engine is loaded."""
    from rapidocr.ch_ppocr_det.utils import DetPreProcess

    image = numpy.arange(300 * 200 * 3, dtype=numpy.uint32).astype(numpy.uint8).reshape(300, 200, 3)
    detector: Any = engine.load_engine("fast").text_det
    ours = detector.get_preprocess()(image)
    theirs: Any = DetPreProcess(engine.DETECTION_SIDE, "max", detector.mean, detector.std)(image)
    return Preprocessed(float(abs(ours - theirs).max()), ours.flags.c_contiguous, theirs.flags.c_contiguous)


async def test_the_models_get_the_values_of_the_engine_s_own_preprocessing_but_contiguous(fast: Sandbox):
    answer = await fast.run(preprocess_both_ways, limits=ReaderLimits().recognizing(0))
    assert isinstance(answer, Preprocessed)
    assert answer.difference < 1e-5
    assert (answer.is_contiguous, answer.was_contiguous) == (True, False)


async def read_scan(engine: Sandbox, name: str, profile: str) -> Page:
    return await read(engine, SCANS / f"{name}.jpg", profile)


async def read(engine: Sandbox, file: Path, profile: str) -> Page:
    answer = await engine.run(read_image_page, 1, MAX_PIXELS, profile, file=file, limits=ReaderLimits().recognizing(0))
    assert isinstance(answer, RecognizedPage)
    return answer.page


def wrong_letters(name: str, page: Page) -> float:
    """The edit distance to the known text, in percent."""
    between = " " if name == "english" else ""
    text = between.join("\n".join(span.text for span in page.spans).split())
    truth = between.join((SCANS / f"{name}.txt").read_text().split())
    return 100 * distance(truth, text) / len(truth)


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
        assert wrong_letters("english", await read_scan(accurate, "english", "accurate")) <= 0.1

    async def test_reads_chinese_with_three_letters_in_a_thousand_wrong_at_most(self, accurate: Sandbox):
        assert wrong_letters("chinese", await read_scan(accurate, "chinese", "accurate")) <= 0.3


class TestTheFastProfile:
    @pytest.mark.parametrize(("name", "max_percent"), [("english", 0.2), ("chinese", 0.3), ("mixed", 2.0)])
    async def test_is_nearly_as_good(self, fast: Sandbox, name: str, max_percent: float):
        page = await read_scan(fast, name, "fast")
        assert wrong_letters(name, page) <= max_percent
        assert page.confidence is not None
        assert page.confidence > 0.9

    async def test_gives_each_line_its_bounding_box(self, fast: Sandbox):
        page = await read_scan(fast, "english", "fast")
        boxes = [span.box for span in page.spans if span.box]
        assert len(boxes) == len((SCANS / "english.txt").read_text().splitlines())
        assert all(60 < box[0] < 100 and box[2] < page.width for box in boxes)
        assert boxes == sorted(boxes, key=lambda box: box[1])


class TestARotatedPage:
    async def test_is_read_like_an_upright_one(self, fast: Sandbox, tmp_path: Path):
        upright = await read_scan(fast, "english", "fast")
        for degrees, quarter_turns in ((90, 3), (180, 2), (270, 1)):  # counterclockwise
            file = tmp_path / f"{degrees}.png"
            with Image.open(SCANS / "english.jpg") as image:
                image.convert("RGB").rotate(degrees, expand=True).save(file)
            rotated = await read(fast, file, "fast")
            assert [span.text for span in rotated.spans] == [span.text for span in upright.spans]
            orientation = PageOrientation(width=rotated.width, height=rotated.height, quarter_turns=quarter_turns)
            assert orientation.rotated_size == (upright.width, upright.height)
            for there, here in zip(rotated.spans, orientation.to_original(upright).spans, strict=True):
                assert there.box == pytest.approx(here.box, abs=6)


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
