"""Plain text and markdown, split into pages between lines."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from penstock.documents.blocks import PAGE_CHARACTERS, Block, PageBreak, RawMarkdown
from penstock.documents.rejections import unreadable
from penstock.documents.text.encoding import SAMPLE_BYTES, detect_encoding


def read_plain(file: BinaryIO, resume: str) -> Iterator[Block]:
    """Yield the text from a position on."""
    with open_text(file) as text:
        text.seek(int(resume or 0))
        lines, characters = [], 0
        while line := text.readline(PAGE_CHARACTERS):
            lines.append(line)
            characters += len(line)
            if characters >= PAGE_CHARACTERS:
                yield RawMarkdown(text="".join(lines).strip("\r\n"))
                yield PageBreak(resume=str(text.tell()))
                lines, characters = [], 0
        if lines:
            yield RawMarkdown(text="".join(lines).strip("\r\n"))


@contextmanager
def open_text(file: BinaryIO, *, newline: str | None = None) -> Iterator[io.TextIOWrapper]:
    """Open the file as text with its detected encoding. A position from `tell` is valid in another process."""
    codec = detect_encoding(_telling_sample(file))
    if codec is None:
        raise unreadable("it is not text")
    file.seek(0)
    text = io.TextIOWrapper(file, encoding=codec, errors="replace", newline=newline)
    try:
        yield text
    finally:
        text.detach()  # keeps the file open for its owner


def _telling_sample(file: BinaryIO) -> bytes:
    """The first sample with a character beyond ASCII, which is needed to detect the encoding; otherwise the first."""
    file.seek(0)
    first = file.read(SAMPLE_BYTES)
    sample = first
    while sample.isascii() and (further := file.read(SAMPLE_BYTES)):
        sample = further
    return first if sample.isascii() or detect_encoding(first) is None else sample
