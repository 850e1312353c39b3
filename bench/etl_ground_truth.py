"""Documents with known facts: the text of their pages, and the result that a careful model would return.

A document is a list of blocks. It is laid out in one of four ways: as a PDF that the reader of text layers reads, as
lines with boxes that the layout of OCR puts together, as a Word file that its reader reads, or as markdown
in_fresh_process. Text is printed as people print it, and the result is written as models write it: days in ISO 8601,
bare numbers, addresses in one line.
"""

import io
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, TypeAlias

import docx
from reportlab.lib.pagesizes import A4
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from bench.etl_documents import chinese_font, latin_font
from bench.etl_ground_truth_values import ValueWriter
from penstock.documents.ocr.layout import OcrLine, build_page
from penstock.documents.pages import Page
from penstock.documents.pdf.text_layer import TextLayers, read_text_layers
from penstock.documents.text.batches import ReadBatch, read_batch
from penstock.kernel.json_object import JsonObject

LATIN, CHINESE, SIZE, LEADING = "Facts", "FactsChinese", 10, 16
LEFT, BESIDE, WIDTH, TOP, BOTTOM = 50, 330, 495, 60, 780  # points
PIXELS = 200 / 72  # of a scan, per point


@dataclass(frozen=True, kw_only=True)
class Text:
    """Running text of one or more lines, or a heading."""

    text: str
    is_heading: bool = False


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Labels and values. `way`: with a colon on one line, in two columns, or two pairs per line."""

    pairs: tuple[tuple[str, str], ...]
    way: str = "colon"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Two blocks of lines side by side, such as two addresses."""

    left: tuple[str, ...]
    right: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A table; its first row is the header. `ends` are the right-aligned columns."""

    rows: tuple[tuple[str, ...], ...]
    ends: frozenset[int] = frozenset()


Block: TypeAlias = Text | Pairs | Beside | Rows


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A document before layout."""

    kind: str
    blocks: tuple[Block, ...]
    schema: JsonObject
    value: JsonObject


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A document as it was read, and its facts."""

    kind: str
    way: str
    pages: tuple[Page, ...]
    schema: JsonObject
    value: JsonObject


Kind: TypeAlias = tuple[Callable[[ValueWriter], Draft], str]  # the generator of a document, and its languages


def lay_out(draft: Draft, way: str) -> Facts:
    """Lay out and read a draft."""
    pages = WAYS[way](draft.blocks)
    return Facts(kind=draft.kind, way=way, pages=tuple(pages), schema=draft.schema, value=draft.value)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A text at a position of a page, from the top."""

    text: str
    left: float
    top: float
    page: int
    is_heading: bool = False

    @property
    def size(self) -> int:
        return SIZE + 6 if self.is_heading else SIZE

    @property
    def font(self) -> str:
        return _font(self.text)

    @property
    def width(self) -> float:
        return _width(self.text, self.size)


@dataclass(kw_only=True)
class _Sheet:
    """The cursor of the layout."""

    pieces: list[Piece] = field(default_factory=list)
    top: float = TOP
    page: int = 1

    def row(self, *texts: tuple[str, float], is_heading: bool = False) -> None:
        """Place texts on one line, each at its left edge."""
        if self.top > BOTTOM:
            self.top, self.page = TOP, self.page + 1
        for text, left in texts:
            if text:
                self.pieces.append(Piece(text=text, left=left, top=self.top, page=self.page, is_heading=is_heading))
        self.top += LEADING * (1.6 if is_heading else 1)

    def block(self, block: Block) -> None:
        if isinstance(block, Text):
            for line in _folded(block.text):
                self.row((line, LEFT), is_heading=block.is_heading)
        elif isinstance(block, Pairs):
            self._pairs(block)
        elif isinstance(block, Beside):
            for at in range(max(len(block.left), len(block.right))):
                self.row(*((side[at], x) for side, x in ((block.left, LEFT), (block.right, BESIDE)) if at < len(side)))
        else:
            self._rows(block)
        self.top += LEADING * 0.8

    def _pairs(self, block: Pairs) -> None:
        if block.way == "colon":
            for label, value in block.pairs:
                self.row((f"{label}{_colon(label)}{value}", LEFT))
        elif block.way == "columns":
            for label, value in block.pairs:
                self.row((label, LEFT), (value, LEFT + 160))
        else:
            for at in range(0, len(block.pairs), 2):
                texts = [(f"{label}{_colon(label)}{value}") for label, value in block.pairs[at : at + 2]]
                self.row(*zip(texts, (LEFT, BESIDE), strict=False))

    def _rows(self, block: Rows) -> None:
        width = WIDTH / len(block.rows[0])
        for row in block.rows:
            self.row(*((text, self._left(text, at, width, block)) for at, text in enumerate(row)))

    @staticmethod
    def _left(text: str, at: int, width: float, block: Rows) -> float:
        if at not in block.ends:
            return LEFT + at * width
        return LEFT + (at + 1) * width - 12 - _width(text)


def _font(text: str) -> str:
    return CHINESE if any(letter >= "\u2e80" for letter in text) else LATIN


def _width(text: str, size: int = SIZE) -> float:
    return float(pdfmetrics.stringWidth(text, _font(text), size))


def _colon(label: str) -> str:
    return ": " if label.isascii() or any("a" <= letter <= "z" for letter in label) else "："


def _folded(text: str) -> list[str]:
    lines, line = [], ""
    between = " " if " " in text else ""
    for word in text.split() if between else text:
        longer = f"{line}{between}{word}" if line else word
        if _width(longer) > WIDTH:
            lines.append(line)
            longer = word
        line = longer
    return [*lines, line]


def _laid_out(blocks: Sequence[Block]) -> list[Piece]:
    pdfmetrics.registerFont(TTFont(LATIN, str(latin_font())))
    pdfmetrics.registerFont(TTFont(CHINESE, str(chinese_font())))
    sheet = _Sheet()
    for block in blocks:
        sheet.block(block)
    return sheet.pieces


def _as_pdf(blocks: Sequence[Block]) -> Iterator[Page]:
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    pieces = _laid_out(blocks)
    for page in range(1, 1 + max(piece.page for piece in pieces)):
        for piece in (piece for piece in pieces if piece.page == page):
            canvas.setFont(piece.font, piece.size)
            canvas.drawString(piece.left, A4[1] - piece.top, piece.text)
        canvas.showPage()
    canvas.save()
    layers = read_text_layers(io.BytesIO(out.getvalue()), 1, max(piece.page for piece in pieces), ())
    assert isinstance(layers, TextLayers)
    for layer in layers.layers:
        assert layer.page is not None, layer.distrust
        yield layer.page


def _as_scan(blocks: Sequence[Block]) -> Iterator[Page]:
    pieces = _laid_out(blocks)
    width, height = (side * PIXELS for side in A4)
    for page in range(1, 1 + max(piece.page for piece in pieces)):
        lines = [_seen(piece) for piece in pieces if piece.page == page]
        yield build_page(lines, page, width=width, height=height)


def _seen(piece: Piece) -> OcrLine:
    """A piece as an OCR engine returns it."""
    box = (piece.left, piece.top - piece.size, piece.left + piece.width, piece.top + 2)
    left, top, right, bottom = (round(edge * PIXELS, 1) for edge in box)
    return OcrLine(text=piece.text, box=(left, top, right, bottom), score=0.98)


def _as_word(blocks: Sequence[Block]) -> Iterator[Page]:
    document = docx.Document()
    for block in blocks:
        _write(document, block)
    out = io.BytesIO()
    document.save(out)
    part = read_batch(io.BytesIO(out.getvalue()), "docx", 1, "")
    assert isinstance(part, ReadBatch)
    yield from part.pages


def _write(document: Any, block: Block) -> None:
    if isinstance(block, Text):
        (document.add_heading if block.is_heading else document.add_paragraph)(block.text)
    elif isinstance(block, Pairs) and block.way != "columns":
        for label, value in block.pairs:
            document.add_paragraph(f"{label}{_colon(label)}{value}")
    elif isinstance(block, Beside):
        for line in (*block.left, *block.right):
            document.add_paragraph(line)
    else:
        rows = block.pairs if isinstance(block, Pairs) else block.rows
        table = document.add_table(rows=len(rows), cols=len(rows[0]))
        for at, row in enumerate(rows):
            for column, text in enumerate(row):
                table.cell(at, column).text = text


def _as_markdown(blocks: Sequence[Block]) -> Iterator[Page]:
    yield Page(number=1, origin="file", markdown="\n\n".join(map(_marked, blocks)))


def _marked(block: Block) -> str:
    if isinstance(block, Text):
        return f"## {block.text}" if block.is_heading else block.text
    if isinstance(block, Beside):
        return "\n\n".join((*block.left, *block.right))
    if isinstance(block, Pairs) and block.way != "columns":
        return "\n\n".join(f"{label}{_colon(label)}{value}" for label, value in block.pairs)
    rows = block.pairs if isinstance(block, Pairs) else block.rows
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]])


WAYS: dict[str, Callable[[Sequence[Block]], Iterator[Page]]] = {
    "pdf": _as_pdf,
    "scan": _as_scan,
    "word": _as_word,
    "markdown": _as_markdown,
}


def documents_of(kinds: Sequence[Kind], seed: int, *, of_each: int, ways: Sequence[str]) -> Iterator[Facts]:
    """This many of each kind in each language, with alternating layouts."""
    dice, turns = random.Random(seed), cycle(ways)
    for make, tongues in kinds:
        for tongue in tongues.split():
            for _ in range(of_each):
                yield lay_out(make(ValueWriter(dice=dice, tongue=tongue)), next(turns))
