"""Runs and blocks of the parser become regions in reading order."""

from penstock.documents.layout.paragraphs import group_paragraphs
from penstock.documents.pdf.parsed_page import parse_page
from tests.documents.pdf.fake_parser import Block, Parsed, Rect, Run, TableCell


def read(items: list[Run], *blocks: Block) -> list[str | list[str]]:
    """The regions: their markdown, or the texts of their lines."""
    return [
        region.markdown or [line.text for line in region.lines]
        for region in parse_page(Parsed(items, [*blocks])).regions
    ]


def test_a_heading_whose_box_is_too_small_has_all_of_its_lines():
    items = [Run("A title", 50, 50), Run("that goes on", 50, 70), Run("Text", 50, 100)]
    heading = Block("heading", Rect(50, 50, 100, 12), "A title that goes on")
    assert read(items, heading, Block("paragraph", Rect(50, 100, 100, 12))) == [["A title", "that goes on"], ["Text"]]


def test_runs_outside_blocks_go_below_the_region_above_them():
    items = [Run("Head", 50, 20), Run("One", 50, 50), Run("Aside", 50, 70), Run("Two", 50, 90)]
    blocks = [Block("paragraph", Rect(50, y, 100, 12)) for y in (50, 90)]
    assert read(items, *blocks) == [["Head"], ["One"], ["Aside"], ["Two"]]


def test_a_page_whose_runs_have_no_blocks_does_not_take_long():
    items = [Run(f"line {at}", 50 + at % 3, 20.0 * at) for at in range(20_000)]
    assert len(parse_page(Parsed(items, [Block("heading", Rect(900, 0, 1, 1), "line 0")])).regions) == 1


def test_a_page_without_blocks_is_read_from_top_to_bottom():
    [region] = parse_page(Parsed([Run("a", 0, 0), Run(" ", 0, 9), Run("b", 0, 20)], None)).regions
    assert [line.text for line in region.lines] == ["a", "b"]


def test_runs_beside_each_other_are_one_line_with_a_space_where_there_is_one():
    items = [Run("• ", 50, 50, 5), Run("Half", 80, 50, 20), Run("way", 100.5, 50, 20), Run("there", 124, 50, 20)]
    assert read(items, Block("list_item", Rect(40, 40, 300, 30))) == [["• Halfway there"]]


def test_a_label_far_from_its_value_makes_a_wide_gap_and_a_bullet_does_not():
    items = [Run("Total", 50, 50, 30), Run("7.00", 200, 50, 20), Run("•", 50, 80, 4), Run("Item", 90, 80, 30)]
    [region] = parse_page(Parsed(items, [Block("paragraph", Rect(40, 40, 300, 80))])).regions
    assert [(line.text, line.has_wide_gap) for line in region.lines] == [("Total 7.00", True), ("• Item", False)]


def test_a_block_over_two_columns_is_read_as_its_text_says():
    items = [Run(f"{side}{at}", x, 50 + 20 * at) for at in range(2) for side, x in (("left", 50), ("right", 300))]
    box = Rect(40, 40, 400, 60)
    assert read(items, Block("paragraph", box, "left0 left1 right0 right1")) == [
        ["left0", "left1"],
        ["right0", "right1"],
    ]
    assert read(items, Block("paragraph", box, "left0 right0 left1 right1")) == [["left0 right0", "left1 right1"]]


def test_a_table_code_and_a_rule_are_markdown():
    table = Block(
        "table", Rect(0, 0, 90, 30), header=[TableCell("a"), TableCell("b")], rows=[[TableCell("c"), TableCell("")]]
    )
    code = Block("code", Rect(0, 40, 90, 30), lines=["if x:", "    y"])
    assert read([], table, code, Block("rule", None)) == [
        "| a | b |\n|---|---|\n| c |  |",
        "```\nif x:\n    y\n```",
        "---",
    ]


def test_letters_are_counted_by_size_and_font_and_an_impossible_size_is_guessed():
    page = parse_page(Parsed([Run("abc", 0, 0), Run("de", 0, 20), Run("f", 0, 40, height=20, font_size=1)]))
    assert page.letters == {(10, "Helvetica"): 5, (17, "Helvetica"): 1}
    assert page.text == "abcdef"


def test_infinite_and_nan_positions_do_not_break_a_page():
    odd = [Run("a", 0, float("inf")), Run("b", 0, float("nan")), Run("c", 0, 20, height=0, font_size=0)]
    page = parse_page(Parsed(odd, [Block("paragraph", Rect(0, 0, 200, 100))]))
    assert sorted(page.text) == ["a", "b", "c"]
    assert len(list(group_paragraphs(page.regions))) >= 1
