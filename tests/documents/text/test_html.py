"""HTML: the blocks that are read, and hostile pages."""

from pathlib import Path

import pytest

from penstock.documents.blocks import Heading, ListItem, TableBlock, TextBlock
from penstock.documents.text.html import html_blocks
from penstock.kernel.sandbox.call import Sandbox
from tests.documents.office_files import read_here, read_in_sandbox


def test_headings_paragraphs_and_lists_in_the_order_of_the_source():
    assert html_blocks(
        "<h1>标题 <i>one</i></h1>intro<p>a <a href='http://x/'>link</a><br>next</p><ol><li>x<li>y</ol>"
    ) == [
        Heading(text="标题 one", level=1),
        TextBlock(text="intro"),
        TextBlock(text="a link\nnext"),
        ListItem(text="x", level=0, number=1),
        ListItem(text="y", level=0, number=2),
    ]


def test_lists_in_lists_keep_their_depth():
    assert html_blocks("<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>") == [
        ListItem(text="a", level=0),
        ListItem(text="b", level=1),
        ListItem(text="c", level=0),
    ]


def test_cells_that_span_others_leave_them_empty():
    source = (
        "<table><tr><th colspan=2>wide</th><th rowspan=2>tall</th></tr><tr><td>1</td><td>2</td></tr><tr><td>3|4</table>"
    )
    assert html_blocks(source) == [TableBlock(rows=(("wide", "", "tall"), ("1", "2", ""), ("3|4",)))]


def test_blocks_in_a_cell_are_lines_of_it():
    assert html_blocks("<table><tr><td><p>one</p><ul><li>two</ul></td></tr></table><p>after") == [
        TableBlock(rows=(("one\ntwo",),)),
        TextBlock(text="after"),
    ]


def test_a_table_around_a_table_is_layout():
    source = "<table><tr><td>left</td><td>before<table><tr><td>cell</td></tr></table>behind</td></tr></table>"
    assert html_blocks(source) == [
        TextBlock(text="left"),
        TextBlock(text="before"),
        TableBlock(rows=(("cell",),)),
        TextBlock(text="behind"),
    ]


def test_scripts_styles_and_comments_are_dropped():
    head = "<title>t</title><style>p{}</style>"
    body = "<p>a<script>alert('<p>x</p>')</script>b<!-- c --><svg><text>d</text></svg></p>"
    assert html_blocks(head + body) == [TextBlock(text="ab")]


def test_a_script_that_never_ends_hides_the_rest_and_nothing_else():
    assert html_blocks("<p>seen</p><script>var a = 1; <p>unseen</p>") == [TextBlock(text="seen")]


def test_text_outside_of_any_cell_is_not_lost():
    assert html_blocks("<table>stray<tr><td>cell</td></tr></table>") == [
        TextBlock(text="stray"),
        TableBlock(rows=(("cell",),)),
    ]


def test_preformatted_text_keeps_its_spaces():
    assert html_blocks("<pre>a\n  b</pre>") == [TextBlock(text="a\n  b")]


@pytest.mark.parametrize(
    ("codec", "declared"),
    [
        ("utf-8", ""),
        ("utf-16", ""),
        ("gb18030", "gb2312"),
        ("gb18030", ""),
        ("big5", "big5"),
        ("shift_jis", "shift_jis"),
    ],
)
def test_the_encoding_is_detected_or_declared(codec, declared, tmp_path):
    meta = f'<meta charset="{declared}">' if declared else ""
    path = tmp_path / "a.html"
    path.write_bytes(f"<html>{meta}<h1>中文</h1>".encode(codec))
    assert read_here(path)[0].markdown == "# 中文"


def test_text_that_looks_like_a_page_marker_is_escaped(tmp_path):
    path = tmp_path / "a.html"
    path.write_text("<html><p>&lt;!-- page 9 --&gt;</p><p># no heading</p>")
    assert read_here(path)[0].markdown == "\\<!-- page 9 -->\n\n\\# no heading"


@pytest.mark.asyncio(loop_scope="module")
class TestHostile:
    async def test_nesting_of_any_depth_is_read(self, sandbox: Sandbox, tmp_path: Path):
        path = tmp_path / "deep.html"
        for tag in ("div", "table", "table><tr><td", "ul><li", "b", "svg", "h1", "td", "p"):
            depth = 100_000 if tag == "div" else 20_000  # 20 times the recursion limit of Python
            path.write_text("<html><p>first</p>" + f"<{tag}>" * depth + "inside")
            pages = await read_in_sandbox(sandbox, path)
            assert pages[0].markdown.startswith("first"), tag

    async def test_spans_of_a_billion_are_bounded(self, sandbox: Sandbox, tmp_path: Path):
        path = tmp_path / "wide.html"
        cell = "<td colspan=999999999 rowspan=999999999>x</td>"
        path.write_text(f"<html><table><tr>{cell * 3}</tr><tr>{cell}</tr></table>")
        (page,) = await read_in_sandbox(sandbox, path)
        assert [span.text for span in page.spans] == ["x"] * 4

    async def test_a_page_of_ten_thousand_rows_is_cut(self, sandbox: Sandbox, tmp_path: Path):
        path = tmp_path / "long.html"
        rows = "".join(f"<tr><td>{number}</td></tr>" for number in range(10_000))
        path.write_text(f"<html><table><tr><th>number</th></tr>{rows}</table>")
        pages = await read_in_sandbox(sandbox, path)
        assert [span.text for page in pages for span in page.spans if span.row] == [str(n) for n in range(10_000)]
        assert len(pages) == 50
