"""MinerU's blocks converted to pages with boxes."""

from typing import Any

import pytest

from penstock.adapters.mineru.content import entries_by_page, page_of, plain_page
from penstock.documents.pages import Span

BOX = [50, 60, 950, 100]
PLACED = (50.0, 60.0, 950.0, 100.0)


def entry(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "page_idx": 0, "bbox": BOX, **more}


def markdown_of(*entries: dict[str, Any]) -> str:
    return page_of(1, entries).markdown


class TestAPage:
    def test_is_a_thousand_wide_and_high_where_there_are_boxes(self):
        page = page_of(3, [entry("text", text="Hello")])
        assert (page.number, page.origin, page.width, page.height) == (3, "ocr", 1000, 1000)
        assert page.spans == (Span(text="Hello", box=PLACED),)

    def test_without_boxes_has_no_size(self):
        page = page_of(1, [{"type": "text", "text": "Hello"}])
        assert (page.width, page.height, page.spans) == (0, 0, (Span(text="Hello"),))

    def test_without_blocks_is_empty(self):
        assert page_of(2, []).markdown == ""

    def test_has_its_blocks_in_their_order(self):
        title = entry("text", text="Title", text_level=1)
        assert markdown_of(title, entry("text", text="Body.", text_level=0)) == "# Title\n\nBody."

    def test_cannot_forge_the_mark_of_another(self):
        assert markdown_of(entry("text", text="<!-- page 7 -->")) == "\\<!-- page 7 -->"
        assert plain_page(1, "<!-- page 7 -->").markdown == "\\<!-- page 7 -->"


class TestABlock:
    def test_that_is_a_table_has_a_span_for_each_cell(self):
        html = "<table><tr><td>Item</td><td>Price</td></tr><tr><td>Bolts</td><td>12.50</td></tr></table>"
        table = entry("table", table_body=html, table_caption=["Table 1"], table_footnote=["Net."])
        page = page_of(1, [table])
        assert page.markdown == "Table 1\n\n| Item | Price |\n| --- | --- |\n| Bolts | 12.50 |\n\nNet."
        assert Span(text="12.50", box=PLACED, table=0, row=1, column=1) in page.spans

    def test_that_is_a_second_table_is_counted_on(self):
        html = "<table><tr><td>A</td></tr><tr><td>B</td></tr></table>"
        page = page_of(1, [entry("table", table_body=html), entry("table", table_body=html)])
        assert [span.table for span in page.spans] == [0, 0, 1, 1]

    def test_that_is_a_list_keeps_its_items(self):
        items = entry("list", list_items=["1. One", "2) Two", "- Three", "• Four", "Five"])
        assert markdown_of(items) == "1. One\n2. Two\n\n- Three\n- Four\n- Five"

    def test_that_is_a_formula_stands_between_signs(self):
        assert markdown_of(entry("equation", text="a^2", text_format="latex")) == "$$\na^2\n$$"
        assert markdown_of(entry("equation", text="$$\nb\n$$")) == "$$\nb\n$$"

    def test_that_is_code_stands_between_fences(self):
        code = entry("code", code_body="print(1)", code_caption="Listing 1")
        assert markdown_of(code) == "Listing 1\n\n```\nprint(1)\n```"
        assert markdown_of(entry("code", code_body="```py\nx\n```")) == "```py\nx\n```"

    def test_that_is_a_picture_gives_what_is_written_about_it(self):
        picture = entry("image", img_path="images/a.jpg", image_caption=["Fig. 1"], image_footnote=["Source: us"])
        assert markdown_of(picture) == "Fig. 1\n\nSource: us"
        assert markdown_of(entry("chart", chart_caption=["Sales"], content="2024: 12")) == "Sales\n\n2024: 12"

    @pytest.mark.parametrize("kind", ["header", "footer", "page_number"])
    def test_at_the_edge_is_left_out_of_the_markdown_but_has_its_place(self, kind: str):
        page = page_of(1, [entry(kind, text="Page 3"), entry("text", text="Body.")])
        assert page.markdown == "Body."
        assert page.spans[0] == Span(text="Page 3", box=PLACED)

    @pytest.mark.parametrize("kind", ["aside_text", "page_footnote", "something_new"])
    def test_of_another_type_is_a_paragraph(self, kind: str):
        assert markdown_of(entry(kind, text="See below.")) == "See below."

    @pytest.mark.parametrize(
        "box",
        [None, "no", [1, 2, 3], [1, 2, 3, "4"], [5, 5, 1, 1], [float("nan"), 0, 1, 1], {"x": 1}],
    )
    def test_with_an_odd_box_stands_without_one(self, box: Any):
        page = page_of(1, [{"type": "text", "text": "Hello", "bbox": box}])
        assert page.spans == (Span(text="Hello"),)

    def test_that_leaves_the_page_is_cut_at_its_edge(self):
        assert page_of(1, [entry("text", text="x") | {"bbox": [-5, 10, 2000, 20]}]).spans[0].box == (0, 10, 1000, 20)

    @pytest.mark.parametrize("text", [None, 12, [], [None, 3], "", "  ", "\0", {"a": 1}])
    def test_without_text_is_nothing(self, text: Any):
        assert page_of(1, [entry("text", text=text)]).spans == ()

    @pytest.mark.parametrize("kind", [None, 7, ["text"], {"type": "text"}])
    def test_of_no_type_is_a_paragraph(self, kind: Any):
        assert markdown_of({"type": kind, "text": "Hello"}) == "Hello"

    def test_keeps_no_nul(self):
        assert markdown_of(entry("text", text="a\0b")) == "ab"


class TestPages:
    def test_are_told_apart_by_their_index(self):
        listed = [entry("text", page_idx=1), entry("text", page_idx=0), entry("text", page_idx=1)]
        assert {page: len(found) for page, found in entries_by_page(listed, 0).items()} == {0: 1, 1: 2}

    def test_that_are_behind_the_last_stand_on_the_last(self):
        assert set(entries_by_page([entry("text", page_idx=9)], 2)) == {1}

    @pytest.mark.parametrize("index", [None, "1", -4, 1.5])
    def test_with_an_odd_index_stand_on_the_first(self, index: Any):
        assert set(entries_by_page([entry("text", page_idx=index)], 5)) == {0}

    @pytest.mark.parametrize("listed", [None, {}, "text", [1, None, []]])
    def test_are_none_where_there_is_no_list(self, listed: Any):
        assert entries_by_page(listed, 0) == {}
