"""Text and markdown, as they are, in pages that end between lines."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from penstock.documents.blocks import PAGE_CHARACTERS, AsIs, Block, PageEnd
from penstock.documents.rejections import unreadable
from penstock.documents.text.encoding import SAMPLE_BYTES, codec_of


def read_plain(file: BinaryIO, resume: str) -> Iterator[Block]:
    """The text from where `resume` says on."""
    with opened(file) as text:
        text.seek(int(resume or 0))
        lines, characters = [], 0
        while line := text.readline(PAGE_CHARACTERS):
            lines.append(line)
            characters += len(line)
            if characters >= PAGE_CHARACTERS:
                yield AsIs(text="".join(lines).strip("\r\n"))
                yield PageEnd(resume=str(text.tell()))
                lines, characters = [], 0
        if lines:
            yield AsIs(text="".join(lines).strip("\r\n"))


@contextmanager
def opened(file: BinaryIO, *, newline: str | None = None) -> Iterator[io.TextIOWrapper]:
    """The file as text in the letters it is written in. Its `tell` can be given to `seek` in another process."""
    codec = codec_of(_telling(file))
    if codec is None:
        raise unreadable("it is not text")
    file.seek(0)
    text = io.TextIOWrapper(file, encoding=codec, errors="replace", newline=newline)
    try:
        yield text
    finally:
        text.detach()  # or it would close the file, which is not ours


def _telling(file: BinaryIO) -> bytes:
    """The first stretch that has a letter beyond ASCII, since the others look alike in all codecs; else the first."""
    file.seek(0)
    first = file.read(SAMPLE_BYTES)
    sample = first
    while sample.isascii() and (further := file.read(SAMPLE_BYTES)):
        sample = further
    return first if sample.isascii() or codec_of(first) is None else sample
