"""Objects like those of the PDF parser, for tests without a PDF."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Rect:
    """A box of the parser."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Run:
    """A run of text."""

    text: str
    x: float
    y: float
    width: float = 100
    height: float = 12
    font_size: float = 10
    font_name: str | None = "Helvetica"


@dataclass(frozen=True)
class TableCell:
    """A cell of a table."""

    text: str
    bbox: Rect | None = None


@dataclass(frozen=True)
class Block:
    """A block of any kind."""

    kind: str
    bbox: Rect | None
    text: str = ""
    lines: list[str] | None = None
    header: list[TableCell] | None = None
    rows: list[list[TableCell]] | None = None


@dataclass(frozen=True)
class Parsed:
    """A page."""

    text_items: list[Run]
    blocks: list[Block] | None = field(default_factory=list)
    width: float = 600
    height: float = 800
    text: str = ""
