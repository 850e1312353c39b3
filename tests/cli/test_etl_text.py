"""Results as text for a terminal."""

from penstock.cli.etl.text import describe_fields, describe_place
from penstock.cli.text import printable, shorten
from penstock.documents.pages import Citation

A4 = {1: (595.0, 842.0)}


def test_a_place_is_described_by_page_and_region():
    top_left = Citation(pointer="/number", grounded=True, page=1, box=(60, 80, 120, 92))
    bottom_right = Citation(pointer="/total", grounded=True, page=1, box=(480, 760, 560, 775))
    assert describe_place(top_left, A4) == "page 1, top left (15% across, 10% down)"
    assert describe_place(bottom_right, A4) == "page 1, bottom right (87% across, 91% down)"


def test_without_a_box_or_a_page_size_only_the_page_is_shown():
    assert describe_place(Citation(pointer="/a", grounded=True, page=3), A4) == "page 3"
    assert describe_place(Citation(pointer="/a", grounded=True, page=3, box=(1, 1, 2, 2)), A4) == "page 3"


def test_an_ungrounded_value_is_shown_as_not_found():
    assert describe_place(Citation(pointer="/a", grounded=False), A4) == "not found in the document"


def test_each_leaf_comes_with_its_value_and_its_place():
    value = {"a/b": {"c": 1}, "lines": [{"what": None}]}
    places = [Citation(pointer="/a~1b/c", grounded=True, page=2)]
    assert list(describe_fields(value, places, {})) == [("a~1b.c", "1", "page 2"), ("lines.0.what", "-", "")]


def test_untrusted_text_cannot_move_the_cursor():
    assert printable("a\x1b[2Jb\rc") == "a [2Jb c"
    assert shorten("one\n\ntwo " + "x" * 100, 12) == "one two xxx…"
