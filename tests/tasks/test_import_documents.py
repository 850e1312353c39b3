"""Reading documents from a file: lines, an array or indented, in blocks, past what is broken."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.tasks.api import import_documents
from penstock.tasks.api.import_documents import read_documents
from tests.tasks.older_store import as_array, as_lines, as_pretty_array


class TestReading:
    @pytest.mark.parametrize("block", [1, 2, 5, 1000])
    @pytest.mark.parametrize("form", [as_lines, as_array, as_pretty_array])
    def test_documents_are_found_wherever_a_block_ends(
        self, block: int, form: Callable[[Sequence[Any]], str], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(import_documents, "BLOCK_BYTES", block)
        documents = [{"n": n, "text": '{"\\\n}搜' * n, "in": {"a": [{}]}} for n in range(5)]
        found = list(read_documents(io.BytesIO(form(documents).encode())))
        assert [one.content for one in found] == documents

    def test_after_a_broken_document_the_next_line_is_read(self):
        text = '{"a": 1}\n{"a": "b\n{"a": 2}\n{"x": {"y": 1}\n{"a": 3}\nnonsense\n{"a": 4}\n{"a": 5'
        found = list(read_documents(io.BytesIO(text.encode())))
        assert [(one.line, one.content) for one in found] == [
            (1, {"a": 1}), (2, None), (3, {"a": 2}), (4, None), (5, {"a": 3}), (6, None), (7, {"a": 4}), (8, None),
        ]  # fmt: skip

    def test_one_document_is_in_memory_at_a_time(self):
        """A single line of 64 MB is read in blocks."""

        class Endless(io.RawIOBase):
            def __init__(self) -> None:
                self.left, self.largest = 64, 0

            def read(self, size: int = -1) -> bytes:
                self.largest = max(self.largest, size)
                self.left -= 1
                return b'{"a": "' + b"x" * 999_990 + b'"},' if self.left >= 0 else b""

        file = Endless()
        assert sum(one.content is not None for one in read_documents(file)) == 64  # type: ignore[arg-type]
        assert file.largest <= 2 * import_documents.BLOCK_BYTES
