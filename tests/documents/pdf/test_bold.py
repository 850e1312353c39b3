"""How many characters at the start of a line are bold."""

import pytest

from penstock.documents.layout.lines import TextLine
from penstock.documents.pdf.bold import BoldDetector, is_bold
from tests.documents.pdf import articles


@pytest.mark.parametrize(
    "font",
    ["Helvetica-Bold", "Arial,BoldItalic", "CMBX12", "NimbusRomNo9L-Medi", "Inter-SemiBold", "SimHei", "Roboto-Black"],
)
def test_fonts_are_known_to_be_bold(font: str):
    assert is_bold(font)


@pytest.mark.parametrize("font", ["Helvetica", "CMR10", "Roboto-Medium", "SimSun", "Medieval-Regular", ""])
def test_fonts_are_known_not_to_be_bold(font: str):
    assert not is_bold(font)


def bold_words(paragraph: str, line_text: str, begin: int = 0, *, top: float = 78) -> str:
    """The bold part of a line with this text, from a character on."""
    line = TextLine(line_text, 78, top, 400, top + 12, 10)
    with BoldDetector(articles.paper(articles.text(paragraph), articles.text("<b>Below</b>"))) as detector:
        [end] = detector.bold_ends(1, [(line, begin)])
    return line_text[begin:end]


@pytest.mark.parametrize(
    ("paragraph", "begin", "bold"),
    [
        ("<b>Ice.</b> Nobody knew", 0, "Ice."),
        ("<b>Ice</b><b>.</b> Nobody knew", 0, "Ice."),
        ("<b>Ice. Nobody knew</b>", 0, "Ice. Nobody knew"),
        ("Ice. <b>Nobody knew</b>", 0, ""),
        ("Ice. <b>Nobody</b> knew", 5, "Nobody"),
        ("<b>Fire.</b> Nobody knew", 0, ""),
        ("<b>Ice</b> floats. Nobody knew", 0, "Ice"),
    ],
)
def test_bold_words_are_those_before_the_first_that_is_not(paragraph: str, begin: int, bold: str):
    assert bold_words(paragraph, "Ice. Nobody knew", begin) == bold


def test_words_of_other_lines_do_not_count():
    assert bold_words("Above", "Below", top=300) == ""
    assert bold_words("Above", "Below", top=96) == "Below"


def test_nothing_is_bold_on_a_page_that_cannot_be_opened():
    with BoldDetector(b"no PDF at all") as detector:
        assert detector.bold_ends(1, [(TextLine("Ice", 78, 78, 400, 90, 10), 2)]) == [2]
