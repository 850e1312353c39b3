"""JSON Pointers: what they lead to, how they are written, and which of them overlap."""

import pytest

from penstock.kernel.json_schema.pointers import (
    ABSENT,
    BadPointer,
    field_path,
    find_overlap,
    format_pointer,
    parse_pointer,
    resolve,
)

RFC = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", RFC), ("/foo", ["bar", "baz"]), ("/foo/0", "bar"), ("/", 0), ("/a~1b", 1), ("/c%d", 2), ("/e^f", 3),
        ("/g|h", 4), ("/i\\j", 5), ('/k"l', 6), ("/ ", 7), ("/m~0n", 8), ("/foo/2", ABSENT), ("/foo/01", ABSENT),
        ("/foo/-", ABSENT), ("/foo/1e0", ABSENT), ("/foo/²", ABSENT), ("/foo/0/0", ABSENT), ("/nothing", ABSENT),
    ],
)  # fmt: skip
def test_pointers_lead_where_the_standard_says(pointer: str, value: object):
    assert resolve(RFC, parse_pointer(pointer)) == value
    assert format_pointer(parse_pointer(pointer)) == pointer


def test_an_escaped_tilde_is_not_read_twice():
    assert parse_pointer("/~01") == ("~1",)


@pytest.mark.parametrize("pointer", ["a", "#/a", "/~", "/a~2", "/~~0", "/~~01", "/" + "a" * 1000])
def test_what_is_no_pointer_is_refused(pointer: str):
    with pytest.raises(BadPointer):
        parse_pointer(pointer)


def test_numbers_in_lists_are_stars_and_names_that_look_like_numbers_are_not():
    value = {"rows": [{"1": [5]}]}
    assert field_path(value, ("rows", "0", "1", "0")) == "/rows/*/1/*"


def test_places_overlap_when_one_lies_in_the_other():
    assert find_overlap([("a", "b"), ("a",), ("c",)]) == (("a",), ("a", "b"))
    assert find_overlap([("a",), ("a",)]) == (("a",), ("a",))
    assert find_overlap([("a", "b"), ("ab",), ("a", "c")]) is None
