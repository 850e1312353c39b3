"""Pages are split into chunks, and no text is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents.extract.llm.chunks import Chunk, TooManyChunks, chunk_pages

PAGES = st.lists(st.text(alphabet="ab#. \n\t界", max_size=120), max_size=8)


def texts(pages: list[str], limit: int) -> list[str]:
    return [chunk.text for chunk in chunks(pages, limit)]


def chunks(pages: list[str], limit: int) -> list[Chunk]:
    return chunk_pages(enumerate(pages, 1), max_characters=limit, max_chunks=1000)


@given(pages=PAGES, limit=st.integers(1, 60))
def test_the_chunks_joined_are_the_text_and_none_is_too_long(pages: list[str], limit: int):
    result = chunks(pages, limit)
    assert "".join(chunk.text for chunk in result) == "".join(pages)
    assert all(len(chunk.text) <= limit for chunk in result)
    assert all(chunk.first_page <= chunk.last_page for chunk in result)
    assert [chunk.first_page for chunk in result] == sorted(chunk.first_page for chunk in result)


@given(pages=PAGES, limit=st.integers(1, 60))
def test_the_text_of_a_chunk_is_on_its_pages(pages: list[str], limit: int):
    for chunk in chunks(pages, limit):
        assert chunk.text in "".join(pages[chunk.first_page - 1 : chunk.last_page])


def test_pages_stay_together_while_they_fit():
    result = chunks(["a" * 40, "b" * 40, "c" * 40], 100)
    assert [(chunk.first_page, chunk.last_page) for chunk in result] == [(1, 2), (3, 3)]
    assert result[0].pages == [1, 2]


def test_a_long_page_is_cut_before_a_heading():
    page = "# One\n" + "x " * 20 + "\n\n" + "y " * 20 + "\n# Two\nz"
    assert texts([page], 95) == [page[: page.index("# Two")], "# Two\nz"]


def test_without_a_heading_it_is_cut_after_a_paragraph():
    assert texts(["one line\nof text\n\nanother one\n\nlast"], 22) == ["one line\nof text\n\n", "another one\n\nlast"]


def test_without_a_paragraph_it_is_cut_after_a_line_and_then_after_a_word():
    assert texts(["first line\nsecond line\n"], 14) == ["first line\n", "second line\n"]
    assert texts(["some words 1234"], 12) == ["some words ", "1234"]


def test_only_a_word_that_is_too_long_is_cut():
    assert texts(["a" * 25], 10) == ["a" * 10, "a" * 10, "a" * 5]


def test_the_rest_of_a_long_page_is_joined_with_the_next():
    result = chunks(["a" * 8 + "\n" + "b" * 8, "c"], 10)
    assert [(chunk.text, chunk.pages) for chunk in result] == [("a" * 8 + "\n", [1, 1]), ("b" * 8 + "c", [1, 2])]


def test_too_many_chunks_are_an_error_and_never_fewer():
    pages = list(enumerate(["a" * 10] * 3, 1))
    assert len(chunk_pages(pages, max_characters=10, max_chunks=3)) == 3
    with pytest.raises(TooManyChunks):
        chunk_pages(pages, max_characters=10, max_chunks=2)
