"""Pages that lie sideways, upside down or askew are read as if they lay straight, and boxes say where things stand."""

import io
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from PIL import Image

from penstock.adapters.local_reader import ReaderLimits, engine_sandbox
from penstock.documents.ocr.engine import Seen, read_image_page
from penstock.documents.ocr.layout import OcrLine, build_page
from penstock.documents.ocr.orientation import (
    PageOrientation,
    RecognizedLine,
    is_readable,
    quarter_turns_to_try,
    skew_angle,
)
from penstock.documents.pages import Box, Page, Span
from penstock.kernel.sandbox.call import Sandbox

SCANS = Path(__file__).parents[2] / "fixtures" / "documents" / "scans"
MAX_PIXELS = 50_000_000
TEXT = "A line of a letter"


def line_seen(box: Box, *, text: str = TEXT, score: float = 0.95, fall: float = 0.0) -> RecognizedLine:
    left, top, right, bottom = box
    return RecognizedLine(((left, top), (right, top + fall), (right, bottom + fall), (left, bottom)), text, score)


def askew(deskew: RecognizedLine, angle: float) -> RecognizedLine:
    cos, sin = math.cos(angle), math.sin(angle)
    return deskew._replace(corners=[(x * cos - y * sin, x * sin + y * cos) for x, y in deskew.corners])


FLAT, ON_END = (50.0, 50.0, 450.0, 70.0), (50.0, 50.0, 70.0, 450.0)


class TestWhichWayToTry:
    @pytest.mark.parametrize(
        ("box", "score", "quarter_turns"), [(FLAT, 0.95, 0), (FLAT, 0.55, 2), (ON_END, 0.95, 1), (ON_END, 0.55, 3)]
    )
    def test_follows_from_how_lines_stand_and_whether_they_can_be_read(
        self, box: Box, score: float, quarter_turns: int
    ):
        assert quarter_turns_to_try([line_seen(box, score=score)] * 5) == quarter_turns

    def test_is_none_for_a_few_letters(self):
        assert quarter_turns_to_try([line_seen(ON_END, text="COPY"), line_seen(FLAT, text="?!", score=0.1)]) == 0
        assert quarter_turns_to_try([]) == 0

    def test_is_that_of_most_letters(self):
        body, margin = [line_seen(FLAT)] * 5, [line_seen(ON_END)] * 2
        assert quarter_turns_to_try(body + margin) == 0
        assert quarter_turns_to_try(body[:1] + margin) == 1

    def test_nothing_cannot_be_read(self):
        assert not is_readable([])


class TestSlant:
    def test_is_that_of_most_long_lines(self):
        lines = [line_seen(FLAT, fall=8)] * 3 + [line_seen(FLAT)] + [line_seen((0, 0, 20, 20), fall=20)] * 9
        assert skew_angle(lines) == pytest.approx(math.atan2(8, 400))

    @pytest.mark.parametrize("fall", [0, 1, 300])
    def test_is_none_when_it_is_too_small_to_matter_or_no_slant_at_all(self, fall: float):
        assert skew_angle([line_seen(FLAT, fall=fall)]) == 0
        assert skew_angle([]) == 0


class TestBoxes:
    @pytest.mark.parametrize(
        ("quarter_turns", "there"),
        [(0, (10, 20, 110, 40)), (1, (760, 10, 780, 110)), (2, (690, 560, 790, 580)), (3, (20, 490, 40, 590))],
    )
    def test_are_put_back_to_where_things_stand_on_the_page_as_it_is(self, quarter_turns: int, there: Box):
        orientation = PageOrientation(width=800, height=600, quarter_turns=quarter_turns)
        width, height = orientation.rotated_size
        assert (width, height) == ((800, 600) if quarter_turns % 2 == 0 else (600, 800))
        laid = Page(
            number=1,
            origin="ocr",
            markdown="x",
            spans=(Span("x", (10, 20, 110, 40), table=0, row=1, column=2), Span("y")),
            width=width,
            height=height,
        )
        page = orientation.to_original(laid)
        assert page.spans == (Span("x", there, table=0, row=1, column=2), Span("y"))
        assert (page.width, page.height) == (800, 600)

    def test_of_slanting_lines_are_level_while_the_page_is_laid_out(self):
        orientation = PageOrientation(width=800, height=600, skew=math.atan2(14, 400))
        one, other = line_seen((50, 50, 450, 70), fall=14), line_seen((500, 65.75, 700, 85.75), fall=7)
        levels = [orientation.deskew(each.corners)[1] for each in (one, other)]
        assert levels[0] == pytest.approx(levels[1], abs=0.5)
        laid = Page(number=1, origin="ocr", markdown="", spans=(Span("x", orientation.deskew(one.corners)),))
        (span,) = orientation.to_original(laid).spans
        assert span.box == pytest.approx((50, 50, 450, 84), abs=1.5)


@pytest.mark.parametrize("degrees", [2, -2])
def test_a_table_that_lies_askew_keeps_its_rows(degrees: float):
    cells = [("Month", "Ships", "Tonnes"), ("January", "12", "3,400"), ("March", "17", "5,020"), ("May", "21", "7,100")]
    angle = math.radians(degrees)
    lines_seen = [
        askew(
            line_seen((50 + 300.0 * column, 300 + 34.0 * row, 250 + 300.0 * column, 324 + 34.0 * row), text=text), angle
        )
        for row, texts in enumerate(cells)
        for column, text in enumerate(texts)
    ]
    orientation = PageOrientation(width=1000, height=1400, skew=skew_angle(lines_seen))
    lines = [OcrLine(text=each.text, box=orientation.deskew(each.corners), score=each.score) for each in lines_seen]
    page = orientation.to_original(build_page(lines, 1, width=1000, height=1400))
    assert page.markdown.splitlines()[2:] == [
        "| January | 12 | 3,400 |",
        "| March | 17 | 5,020 |",
        "| May | 21 | 7,100 |",
    ]
    last = page.spans[-1]
    assert (last.text, last.row, last.column) == ("7,100", 3, 2)
    middle = [sum(corner[axis] for corner in lines_seen[-1].corners) / 4 for axis in (0, 1)]
    assert last.box is not None
    assert [(last.box[0] + last.box[2]) / 2, (last.box[1] + last.box[3]) / 2] == pytest.approx(middle, abs=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[Sandbox]:
    async with engine_sandbox("fast") as engine:
        yield engine


async def read(engine: Sandbox, degrees: float, folder: Path) -> Page:
    """The English scan, turned against the clock."""
    with Image.open(SCANS / "english.jpg") as image:
        turned = image.convert("RGB").rotate(degrees, expand=True, fillcolor="white", resample=Image.Resampling.BICUBIC)
    content = io.BytesIO()
    turned.save(content, "PNG")
    file = folder / "page.png"
    file.write_bytes(content.getvalue())
    seen = await engine.run(read_image_page, 1, MAX_PIXELS, "fast", file=file, limits=ReaderLimits().seeing(0))
    assert isinstance(seen, Seen)
    return seen.page


@pytest.mark.asyncio(loop_scope="module")
class TestAScan:
    @pytest.mark.parametrize(("degrees", "quarter_turns"), [(90, 3), (180, 2), (270, 1)])
    async def test_that_lies_otherwise_is_read_all_the_same(
        self, engine: Sandbox, degrees: int, quarter_turns: int, tmp_path: Path
    ):
        upright, turned = await read(engine, 0, tmp_path), await read(engine, degrees, tmp_path)
        assert [span.text for span in turned.spans] == [span.text for span in upright.spans]
        orientation = PageOrientation(width=turned.width, height=turned.height, quarter_turns=quarter_turns)
        assert orientation.rotated_size == (upright.width, upright.height)
        for there, here in zip(turned.spans, orientation.to_original(upright).spans, strict=True):
            assert there.box == pytest.approx(here.box, abs=6)
