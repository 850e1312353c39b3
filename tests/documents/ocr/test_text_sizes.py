"""Font sizes, estimated from the width of lines."""

import pytest

from penstock.documents.ocr.text_sizes import TextSizes, width_of
from penstock.documents.pages import Box

TEXT = "The harbour took in more ships than in any year before"


def piece(text: str, *, size: float = 10.0, height: float = 14.0, wider: float = 1.0) -> tuple[str, Box]:
    return text, (0, 0, width_of(text) * size * wider + 0.12 * height, height)


def ratio(text: str, **looks: float) -> float:
    sizes = TextSizes.of([piece(TEXT), piece(TEXT), piece("Title", size=18, height=25)])
    return sizes.line_size(*piece(text, **looks)) / sizes.letters


def test_the_usual_size_is_that_of_most_letters():
    sizes = TextSizes.of([piece(TEXT), *[piece("Head", size=20, height=28) for _ in range(4)]])
    assert sizes.letters == pytest.approx(10)
    assert sizes.height == 14


def test_a_page_without_text_has_some_size():
    assert TextSizes.of([]).letters > 0


@pytest.mark.parametrize(("size", "height", "most"), [(18, 24, 1.8), (14, 19, 1.4), (12, 16.5, 1.2)])
def test_larger_letters_are_told_from_usual_ones(size: float, height: float, most: float):
    assert 1.12 < ratio("Ships by month", size=size, height=height) <= most


@pytest.mark.parametrize("looks", [{"height": 19}, {"wider": 1.13}, {"wider": 1.25, "height": 11}, {"wider": 0.8}])
def test_letters_are_usual_in_a_high_box_and_when_bold_spaced_or_narrow(looks: dict[str, float]):
    assert ratio("Ships by month", **looks) == 1


def test_smaller_letters_are_narrower_and_lower():
    assert ratio("A note at the foot of the page", size=8, height=11) == pytest.approx(0.8)


def test_a_few_letters_have_to_be_much_larger():
    assert ratio("12", size=12.5) == 1
    assert ratio("12", size=18, height=20) > 1.5
