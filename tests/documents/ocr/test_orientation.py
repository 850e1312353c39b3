"""Orientation and skew of pages: what to try, the skew angle, and boxes mapped back to the page."""

import math

import pytest

from penstock.documents.ocr.layout import OcrLine, build_page
from penstock.documents.ocr.orientation import (
    PageOrientation,
    RecognizedLine,
    is_readable,
    quarter_turns_to_try,
    skew_angle,
)
from penstock.documents.pages import Box, Page, Span

TEXT = "A line of a letter"


def recognized(box: Box, *, text: str = TEXT, score: float = 0.95, fall: float = 0.0) -> RecognizedLine:
    left, top, right, bottom = box
    return RecognizedLine(((left, top), (right, top + fall), (right, bottom + fall), (left, bottom)), text, score)


def skewed(line: RecognizedLine, angle: float) -> RecognizedLine:
    cos, sin = math.cos(angle), math.sin(angle)
    return line._replace(corners=[(x * cos - y * sin, x * sin + y * cos) for x, y in line.corners])


FLAT, ON_END = (50.0, 50.0, 450.0, 70.0), (50.0, 50.0, 70.0, 450.0)


class TestQuarterTurnsToTry:
    @pytest.mark.parametrize(
        ("box", "score", "quarter_turns"), [(FLAT, 0.95, 0), (FLAT, 0.55, 2), (ON_END, 0.95, 1), (ON_END, 0.55, 3)]
    )
    def test_follow_from_the_direction_of_lines_and_their_scores(self, box: Box, score: float, quarter_turns: int):
        assert quarter_turns_to_try([recognized(box, score=score)] * 5) == quarter_turns

    def test_are_zero_for_a_few_letters(self):
        assert quarter_turns_to_try([recognized(ON_END, text="COPY"), recognized(FLAT, text="?!", score=0.1)]) == 0
        assert quarter_turns_to_try([]) == 0

    def test_are_those_of_most_letters(self):
        body, margin = [recognized(FLAT)] * 5, [recognized(ON_END)] * 2
        assert quarter_turns_to_try(body + margin) == 0
        assert quarter_turns_to_try(body[:1] + margin) == 1

    def test_an_empty_page_is_not_readable(self):
        assert not is_readable([])


class TestSkewAngle:
    def test_is_that_of_most_long_lines(self):
        lines = [recognized(FLAT, fall=8)] * 3 + [recognized(FLAT)] + [recognized((0, 0, 20, 20), fall=20)] * 9
        assert skew_angle(lines) == pytest.approx(math.atan2(8, 400))

    @pytest.mark.parametrize("fall", [0, 1, 300])
    def test_is_zero_when_it_is_negligible_or_implausible(self, fall: float):
        assert skew_angle([recognized(FLAT, fall=fall)]) == 0
        assert skew_angle([]) == 0


class TestBoxes:
    @pytest.mark.parametrize(
        ("quarter_turns", "there"),
        [(0, (10, 20, 110, 40)), (1, (760, 10, 780, 110)), (2, (690, 560, 790, 580)), (3, (20, 490, 40, 590))],
    )
    def test_are_mapped_back_to_the_original_page(self, quarter_turns: int, there: Box):
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

    def test_of_skewed_lines_are_level_during_layout(self):
        orientation = PageOrientation(width=800, height=600, skew=math.atan2(14, 400))
        one, other = recognized((50, 50, 450, 70), fall=14), recognized((500, 65.75, 700, 85.75), fall=7)
        levels = [orientation.deskew(each.corners)[1] for each in (one, other)]
        assert levels[0] == pytest.approx(levels[1], abs=0.5)
        laid = Page(number=1, origin="ocr", markdown="", spans=(Span("x", orientation.deskew(one.corners)),))
        (span,) = orientation.to_original(laid).spans
        assert span.box == pytest.approx((50, 50, 450, 84), abs=1.5)


@pytest.mark.parametrize("degrees", [2, -2])
def test_a_skewed_table_keeps_its_rows(degrees: float):
    cells = [("Month", "Ships", "Tonnes"), ("January", "12", "3,400"), ("March", "17", "5,020"), ("May", "21", "7,100")]
    angle = math.radians(degrees)
    lines_found = [
        skewed(
            recognized((50 + 300.0 * column, 300 + 34.0 * row, 250 + 300.0 * column, 324 + 34.0 * row), text=text),
            angle,
        )
        for row, texts in enumerate(cells)
        for column, text in enumerate(texts)
    ]
    orientation = PageOrientation(width=1000, height=1400, skew=skew_angle(lines_found))
    lines = [OcrLine(text=each.text, box=orientation.deskew(each.corners), score=each.score) for each in lines_found]
    page = orientation.to_original(build_page(lines, 1, width=1000, height=1400))
    assert page.markdown.splitlines()[2:] == [
        "| January | 12 | 3,400 |",
        "| March | 17 | 5,020 |",
        "| May | 21 | 7,100 |",
    ]
    last = page.spans[-1]
    assert (last.text, last.row, last.column) == ("7,100", 3, 2)
    middle = [sum(corner[axis] for corner in lines_found[-1].corners) / 4 for axis in (0, 1)]
    assert last.box is not None
    assert [(last.box[0] + last.box[2]) / 2, (last.box[1] + last.box[3]) / 2] == pytest.approx(middle, abs=1)
