"""Grouping lines into paragraphs: cases that no PDF library produces."""

import pytest

from penstock.documents.layout.lines import PageRegion, TextLine, bounding_box, join_lines
from penstock.documents.layout.paragraphs import group_paragraphs

SIZE, PITCH, LEFT, EDGE = 10.0, 12.0, 72.0, 500.0


def lines_below(*texts: str, left: float = LEFT, top: float = 100.0, size: float = SIZE) -> list[TextLine]:
    """Lines below each other, all but the last of them full."""
    made = []
    for at, text in enumerate(texts):
        right = EDGE if at < len(texts) - 1 else left + SIZE / 2 * len(text)
        y = top + PITCH * at
        made.append(TextLine(text, left, y, right, y + size, size))
    return made


def read(*regions: list[TextLine] | str) -> list[str]:
    found = group_paragraphs([_part(each) for each in regions])
    return [each if isinstance(each, str) else join_lines(each.lines) for each in found]


def _part(each: list[TextLine] | str) -> PageRegion:
    if isinstance(each, str):
        return PageRegion(box=(LEFT, 0, EDGE, 0), markdown=each)
    return PageRegion(box=bounding_box([line.box for line in each]), runs=each, lines=each)


class TestALine:
    def test_that_begins_with_initials_goes_on(self):
        assert (
            len(read(lines_below("The paper was written by", "J. Doe and by others in the same year as", "this"))) == 1
        )

    def test_that_begins_with_a_number_in_the_midst_of_a_sentence_goes_on(self):
        assert len(read(lines_below("The default value is 50, and the highest is", "100. All others are refused"))) == 1

    @pytest.mark.parametrize("marker", ["1.", "2)", "(3)", "a)", "•", "-", "二、", "①", "\uf0b7"])
    def test_that_starts_with_a_marker_after_a_sentence_starts_an_item(self, marker: str):
        assert len(read(lines_below("There are several things to do now.", f"{marker} This one"))) == 2

    @pytest.mark.parametrize("text", ["-5 degrees were measured", "3.5 tonnes of it", "A. Smith has said"])
    def test_may_start_with_what_only_looks_like_a_marker(self, text: str):
        assert len(read(lines_below("It was said of all of this, and also of", text, "and so on"))) == 1

    def test_in_the_next_column_goes_on_when_its_sentence_does(self):
        left = lines_below("The harbour was closed", "for nine days by the", "")[:2]
        assert len(read(left, lines_below("ice", left=600, top=50))) == 1
        assert len(read(left, lines_below("Ice is rare", left=600, top=50))) == 2

    def test_after_a_table_begins_anew(self):
        assert read(lines_below("closed by the"), "| table |", lines_below("ice")) == [
            "closed by the",
            "| table |",
            "ice",
        ]

    def test_of_a_table_of_contents_stands_alone(self):
        assert len(read(lines_below("1.1 Ships . . . . . . . . 3", "1.2 Ice ................ 4", "1.3 Money"))) == 3

    def test_with_a_wide_space_in_it_stands_alone(self):
        total = [line._replace(has_wide_gap=True) for line in lines_below("Subtotal 7.00", "Total 8.00", "and more")]
        assert len(read(total)) == 3

    def test_that_begins_with_a_smaller_word_goes_on(self):
        first, second = lines_below("It is best to call the command", "open_valve and to wait for it")
        assert len(read([first, second._replace(size=9.0)])) == 1


class TestParagraphs:
    def test_of_double_spaced_lines_stay_whole(self):
        texts = ["Line one of the text,", "Line two of the text,", "Line three of it,", "Line four of it.", "Line five"]
        wide = [line._replace(top=100 + 24 * at, bottom=110 + 24 * at) for at, line in enumerate(lines_below(*texts))]
        assert len(read(wide)) == 1

    def test_are_one_though_one_of_their_lines_is_too_long(self):
        *full, last = lines_below(*[f"Line {at} of a text that is as long as its column" for at in range(5)], "The end")
        assert len(read([*full, last._replace(right=EDGE + 15 * SIZE)])) == 1

    def test_are_kept_apart_where_each_begins_with_a_label(self):
        assert len(read(lines_below("Invoice No: 7 and 8", "Seller: Mill Street"))) == 2

    def test_may_be_in_the_middle_of_the_page(self):
        wide, narrow = lines_below("A line that is as wide as its column", "and the rest of it")
        off = (wide.left + wide.right - narrow.left - narrow.right) / 2
        assert len(read([wide, narrow._replace(left=narrow.left + off, right=narrow.right + off)])) == 1


class TestWords:
    @pytest.mark.parametrize("hyphen", ["-", "\u2010", "\u00ad"])
    def test_that_a_line_cut_are_whole(self, hyphen: str):
        assert join_lines(lines_below(f"in the spr{hyphen}", "ing")) == "in the spring"

    @pytest.mark.parametrize(("one", "other"), [("of 1990-", "1995"), ("the Rhine-", "Main area"), ("a -", "b")])
    def test_keep_a_hyphen_that_is_their_own(self, one: str, other: str):
        assert join_lines(lines_below(one, other)) == f"{one} {other}"

    def test_of_chinese_have_no_space_between_them(self):
        assert join_lines(lines_below("写在上", "面。English", "follows")) == "写在上面。English follows"
