"""The words of a document: what is read of its file of pages to ask a model about."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.documents.errors import DocumentUnreadable
from penstock.documents.extract.errors import DocumentHasNoText
from penstock.documents.pages import page_mark


class _PageText(msgspec.Struct, frozen=True):
    """Of a page only its words: where they stand is the grounding's business."""

    number: int
    markdown: str


class TextTooLong(Exception):
    """There is more text than anybody may be asked about."""


def read_text(filename: str, pages: Path, *, most_characters: int) -> list[tuple[int, str]]:
    """The pages by number and text, each with its mark. Blocks on the disk: call it in a thread."""
    try:
        with pages.open("rb") as file:
            lines = map(msgspec.json.Decoder(_PageText).decode, filter(bytes.strip, file))
            read = list(_bounded(lines, most_characters))
    except msgspec.MsgspecError as error:
        raise DocumentUnreadable(filename=filename, kind="a file of pages", reason=str(error)) from error
    if not any(page.markdown.strip() for page in read):
        raise DocumentHasNoText(filename=filename)
    return [(page.number, f"{page_mark(page.number)}\n\n{page.markdown}\n\n") for page in read]


def _bounded(pages: Iterator[_PageText], most_characters: int) -> Iterator[_PageText]:
    length = 0
    for page in pages:
        length += len(page.markdown)
        if length > most_characters:
            raise TextTooLong
        yield page
