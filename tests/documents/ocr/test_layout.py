"""Layout of recognized lines: reading order, paragraphs, headings, lists, tables. Needs no engine."""

from penstock.documents.ocr.layout import OcrLine, build_page
from penstock.documents.ocr.text_sizes import width_of

HEIGHT = 20.0
SIZE = 14.0  # of letters in a box of that height


def line(text: str, left: float, top: float, *, width: float | None = None, height: float = HEIGHT) -> OcrLine:
    right = left + (width_of(text) * SIZE * height / HEIGHT if width is None else width)
    return OcrLine(text=text, box=(left, top, right, top + height), score=0.9)


def render_markdown(*lines: OcrLine) -> str:
    return build_page(lines, 1, width=800, height=1000).markdown


class TestAPage:
    def test_without_lines_is_empty(self):
        page = build_page((), 3, width=100, height=200)
        assert (page.number, page.markdown, page.spans, page.confidence) == (3, "", (), None)

    def test_has_a_span_for_each_line_and_a_confidence(self):
        page = build_page([line("One", 50, 50), line("Two", 50, 120)], 1, width=800, height=1000)
        assert [(span.text, span.box[:2], span.box[3]) for span in page.spans if span.box] == [
            ("One", (50, 50), 70),
            ("Two", (50, 120), 140),
        ]
        assert page.confidence == 0.9
        assert page.origin == "ocr"

    def test_cannot_forge_the_marker_between_pages(self):
        assert render_markdown(line("<!-- page 2 -->", 50, 300)) == "\\<!-- page 2 -->"


class TestParagraphs:
    def test_go_on_while_lines_are_full_and_close(self):
        written = render_markdown(
            line("A long line of text that is followed by a second", 50, 50),
            line("one, which is as long as the first one, and then", 50, 75),
            line("by the end.", 50, 100),
            line("A new thought begins here and is as long as these", 50, 125),
            line("others, and goes on.", 50, 150),
        )
        assert written == (
            "A long line of text that is followed by a second one, which is as long as the first one, and then "
            "by the end.\n\nA new thought begins here and is as long as these others, and goes on."
        )

    def test_of_chinese_have_no_space_between_lines(self):
        written = render_markdown(line("港务局长有一本登记簿每一艘船都要", 50, 50), line("写在上面。", 50, 75))
        assert written == "港务局长有一本登记簿每一艘船都要写在上面。"

    def test_are_parted_by_space(self):
        one = line("A long line of text that is full", 50, 50)
        assert render_markdown(one, line("and then this", 50, 120)).count("\n\n") == 1

    def test_short_lines_stay_on_their_own(self):
        assert (
            render_markdown(line("Name: Jane", 50, 50), line("City: Bristol", 50, 75)) == "Name: Jane\n\nCity: Bristol"
        )


class TestHeadings:
    def test_have_larger_letters_than_other_lines(self):
        lines = [line("Terms of use", 50, 20, height=36), line("Payment", 50, 80, height=29)]
        lines += [line(f"Body text number {at}.", 50, 130 + 40 * at) for at in range(6)]
        assert render_markdown(*lines).startswith("# Terms of use\n\n## Payment\n\nBody text number 0.")

    def test_are_not_lines_whose_box_happens_to_be_high(self):
        body = [line(f"A line of text as long as others {at}", 50, 100 + 25 * at) for at in range(5)]
        high = line("A line in a box that is too high", 50, 225, width=body[0].width, height=27)
        assert "#" not in render_markdown(*body, high)

    def test_may_go_on_in_the_next_line(self):
        lines = [line("A title that is so long that it", 50, 20, height=36), line("goes on", 50, 60, height=36)]
        lines += [line(f"A line of text below a title that is long {at}.", 50, 130 + 25 * at) for at in range(6)]
        assert render_markdown(*lines).startswith("# A title that is so long that it goes on\n\nA line of text")

    def test_end_a_table(self):
        rows = [("Month", "Ships", "Tonnes"), ("January", "12", "3,400"), ("March", "17", "5,020")]
        lines = [
            line(cell, 50 + 150 * column, top + 30 * row)
            for top in (50, 180)
            for row, cells in enumerate(rows)
            for column, cell in enumerate(cells)
        ]
        written = render_markdown(*lines, line("In the next year", 50, 140, height=30))
        assert written.split("\n\n")[1] == "## In the next year"
        assert written.count("| --- | --- | --- |") == 2


class TestLists:
    def test_have_one_line_per_item(self):
        written = render_markdown(
            line("• first thing that is to be done now", 50, 50),
            line("· second", 50, 75),
            line("2. third", 50, 100),
        )
        assert written == "- first thing that is to be done now\n- second\n\n2. third"


class TestPageNumbers:
    def test_are_left_out(self):
        assert render_markdown(line("Some text", 50, 300), line("- 12 -", 380, 960)) == "Some text"

    def test_are_none_in_the_middle_of_the_page(self):
        assert render_markdown(line("Some text", 50, 300), line("12", 50, 500)) == "Some text\n\n12"


class TestColumns:
    def test_are_read_one_after_the_other(self):
        left = [line(f"left text of line number {at}", 50, 50 + 25 * at, width=300) for at in range(5)]
        right = [line(f"right text of line number {at}", 400, 52 + 25 * at, width=300) for at in range(5)]
        page = build_page([*right, *left], 1, width=800, height=1000)
        assert [span.text for span in page.spans] == [each.text for each in (*left, *right)]

    def test_may_stand_under_a_line_over_both(self):
        over = line("A title that goes over the whole page and more", 50, 10, width=650)
        left = [line(f"left text of line number {at}", 50, 60 + 25 * at, width=300) for at in range(4)]
        right = [line(f"right text of line number {at}", 400, 60 + 25 * at, width=300) for at in range(4)]
        under = line("A closing line that goes over the whole page", 50, 200, width=650)
        page = build_page([under, *right, over, *left], 1, width=800, height=1000)
        assert [span.text for span in page.spans] == [each.text for each in (over, *left, *right, under)]


class TestTables:
    def test_are_pieces_in_rows_and_under_each_other(self):
        rows = [("Month", "Ships", "Tonnes"), ("January", "12", "3,400"), ("March", "17", "5,020")]
        lines = [
            line(cell, 50 + 150 * column, 50 + 30 * row)
            for row, cells in enumerate(rows)
            for column, cell in enumerate(cells)
        ]
        page = build_page(lines, 1, width=800, height=1000)
        assert page.markdown == (
            "| Month | Ships | Tonnes |\n| --- | --- | --- |\n| January | 12 | 3,400 |\n| March | 17 | 5,020 |"
        )
        assert [(span.text, span.row, span.column) for span in page.spans if span.table == 0][4] == ("12", 1, 1)

    def test_may_have_empty_cells(self):
        lines = [line("Item", 50, 50), line("Price", 300, 50), line("Rope", 50, 80), line("7.50", 300, 80)]
        lines += [line("Note", 50, 110), line("Total", 50, 140), line("7.50", 300, 140)]
        assert "| Note |  |" in render_markdown(*lines)

    def test_end_where_the_pieces_do(self):
        lines = [line("Item", 50, 50), line("Price", 300, 50), line("Rope", 50, 80), line("7.50", 300, 80)]
        written = render_markdown(*lines, line("Thank you", 50, 180))
        assert written.endswith("| Rope | 7.50 |\n\nThank you")

    def test_keep_a_bar_inside_a_cell(self):
        lines = [line("a|b", 50, 50), line("x", 300, 50), line("c", 50, 80), line("y", 300, 80)]
        assert render_markdown(*lines).startswith("| a\\|b | x |")

    def test_one_row_of_two_pieces_is_a_line(self):
        assert render_markdown(line("Total", 50, 50), line("1,250.00", 300, 50)) == "Total 1,250.00"
