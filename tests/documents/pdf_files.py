"""PDFs and page images for tests: good ones, and one for each kind of defect."""

import io
import zlib
from collections.abc import Callable, Sequence

import pikepdf
from PIL import Image, ImageDraw, ImageFont
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Flowable,
    Frame,
    FrameBreak,
    ListFlowable,
    ListItem,
    PageTemplate,
    Paragraph,
    SimpleDocTemplate,
    Table,
)

SHIPS = [["Month", "Ships", "Tonnes"], ["January", "12", "3,400"], ["February", "9", "2,150"], ["March", "17", "5,020"]]
PLANS = ["A second crane on the north quay", "A new road to the station", "Longer opening hours"]
PROSE = "The harbour took in more ships than in any year before. "
INVOICE = ["Invoice 2024-117", "Date: 14 March 2024", "Total: 1,250.00 EUR"]
HEAD = [
    ("Invoice No.:", "2026-0017"),
    ("Invoice date:", "2026-03-14"),
    ("Due date:", "2026-04-13"),
    ("Customer No.:", "C-991"),
]
RIGHT = 545  # the edge that figures end at
_BODY, _BOLD = ("Helvetica", 10), ("Helvetica-Bold", 10)
INVOICE_ROWS = [
    (("Helvetica-Bold", 18), 790, [(50, "ACME Pumps GmbH")]),
    (("Helvetica-Bold", 22), 790, [(RIGHT, "INVOICE")]),
    (("Helvetica", 9), 775, [(50, "Werkstr. 5, 50667 Köln")]),
    (("Helvetica", 9), 763, [(50, "VAT ID: DE123456789")]),
    *((_BODY, 765 - 14 * at, [(380, label), (RIGHT, value)]) for at, (label, value) in enumerate(HEAD)),
    (_BOLD, 700, [(50, "Bill to"), (300, "Ship to")]),
    (_BODY, 686, [(50, "Jane Doe Ltd."), (300, "Jane Doe Warehouse")]),
    (_BODY, 674, [(50, "1 High Street"), (300, "Dock 9")]),
    (_BODY, 662, [(50, "London E1 6AN"), (300, "Dover CT16")]),
    (_BOLD, 620, [(50, "Pos"), (100, "Description"), (350, "Qty"), (420, "Unit price"), (500, "Amount")]),
    (_BODY, 600, [(50, "1"), (100, "Centrifugal pump XL-200"), (350, "2"), (420, "450.00"), (500, "900.00")]),
    (_BODY, 582, [(50, "2"), (100, "Seal kit"), (350, "10"), (420, "12.50"), (500, "125.00")]),
    (_BODY, 564, [(50, "3"), (100, "Installation, incl. travel"), (350, "1"), (420, "300.00"), (500, "300.00")]),
    (_BODY, 520, [(400, "Subtotal"), (RIGHT, "1,325.00")]),
    (_BODY, 506, [(400, "VAT 19%"), (RIGHT, "251.75")]),
    (_BODY, 492, [(400, "Total EUR"), (RIGHT, "1,576.75")]),
    (_BODY, 440, [(50, "Payment within 30 days. IBAN: DE89 3704 0044 0532 0130 00")]),
]
LINE_HEIGHT = 48
Step = Callable[[Canvas], None]
CHARACTER_MAP = """/CIDInit /ProcSet findresource begin
begincmap
1 begincodespacerange <00> <FF> endcodespacerange
95 beginbfchar
{codes}endbfchar
endcmap
end"""


def drawn(draw: Callable[[Canvas], None]) -> bytes:
    """A PDF that this function draws."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4, pageCompression=1)
    draw(canvas)
    canvas.save()
    return out.getvalue()


def report() -> bytes:
    """A page with headings, running text, a table and a list."""
    styles, out = getSampleStyleSheet(), io.BytesIO()
    body = styles["BodyText"]
    story: list[Flowable] = [
        Paragraph("Annual report of the harbour", styles["Heading1"]),
        Paragraph(PROSE * 4, body),
        Paragraph("Ships by month", styles["Heading2"]),
        Table(SHIPS, style=[("GRID", (0, 0), (-1, -1), 0.5, colors.black)]),
        Paragraph("What is planned", styles["Heading2"]),
        ListFlowable([ListItem(Paragraph(plan, body)) for plan in PLANS], bulletType="bullet"),
    ]
    SimpleDocTemplate(out, pagesize=A4).build(story)
    return out.getvalue()


def table(rows: Sequence[Sequence[str]]) -> bytes:
    """A table with lines around its cells."""
    out = io.BytesIO()
    grid = Table(rows, style=[("GRID", (0, 0), (-1, -1), 0.5, colors.black), ("VALIGN", (0, 0), (-1, -1), "TOP")])
    SimpleDocTemplate(out, pagesize=A4).build([grid])
    return out.getvalue()


def whole_invoice() -> bytes:
    """An invoice: seller beside the header, two addresses, a table, totals at the right edge, payment terms."""

    def draw(canvas: Canvas) -> None:
        for font, y, row in INVOICE_ROWS:
            canvas.setFont(*font)
            for x, text in row:
                (canvas.drawRightString if x == RIGHT else canvas.drawString)(x, y, text)
        canvas.line(50, 545, RIGHT, 545)

    return drawn(draw)


def placed(*rows: tuple[float, Sequence[tuple[float, str]]], size: float = 9, rule: float = 0) -> bytes:
    """Rows of texts at their heights from the top, perhaps with a rule in the right half of the page. A text whose
    place is below 0 ends there."""

    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica", size)
        if rule:
            canvas.line(330, A4[1] - rule, 555, A4[1] - rule)
        for top, row in rows:
            for x, text in row:
                (canvas.drawString if x >= 0 else canvas.drawRightString)(abs(x), A4[1] - top - size, text)

    return drawn(draw)


def two_columns(left: str, right: str) -> bytes:
    """A page with two columns of running text; each text should fill its own."""
    out, body = io.BytesIO(), getSampleStyleSheet()["BodyText"]
    width, height = A4
    frames = [
        Frame(50, height / 2, width / 2 - 65, height / 2 - 50),
        Frame(width / 2 + 15, height / 2, width / 2 - 65, height / 2 - 50),
    ]
    document = BaseDocTemplate(out, pagesize=A4, pageTemplates=[PageTemplate(frames=frames)])
    document.build([Paragraph(left, body), FrameBreak(), Paragraph(right, body)])
    return out.getvalue()


def pages_of(*texts: str) -> bytes:
    """One line of text on each page."""

    def draw(canvas: Canvas) -> None:
        for text in texts:
            canvas.drawString(72, 760, text)
            canvas.showPage()

    return drawn(draw)


def chinese(lines: Sequence[str]) -> bytes:
    """A text layer in Chinese. The font is one that every PDF reader has, so it is not in the file."""
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))

    def draw(canvas: Canvas) -> None:
        canvas.setFont("STSong-Light", 12)
        for at, line in enumerate(lines):
            canvas.drawString(72, 760 - 20 * at, line)

    return drawn(draw)


def picture_of(lines: Sequence[str], *, size: int = 32, width: int = 760) -> Image.Image:
    """An image of these lines, as a scanner makes it."""
    picture = Image.new("L", (width, LINE_HEIGHT * (len(lines) + 1)), 252)
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size)
    for at, line in enumerate(lines):
        pen.text((40, 24 + LINE_HEIGHT * at), line, font=font, fill=20)
    return picture


def reader_of(picture: Image.Image) -> ImageReader:
    """A picture as reportlab takes it."""
    return ImageReader(picture)


def scan_of(*pages: Sequence[str], layer: str = "", invisible: bool = True) -> bytes:
    """A scanned PDF of these lines, optionally with a different text layer on each page."""

    def draw(canvas: Canvas) -> None:
        for lines in pages:
            picture = picture_of(lines)
            size = (picture.width * 72 / 200, picture.height * 72 / 200)
            canvas.setPageSize(size)
            canvas.drawImage(reader_of(picture), 0, 0, *size)
            words = canvas.beginText(10, size[1] - 20)
            words.setFont("Helvetica", 5)
            words.setTextRenderMode(3 if invisible else 0)
            words.textLines(layer)
            canvas.drawText(words)
            canvas.showPage()

    return drawn(draw)


def painted(*steps: Step) -> bytes:
    """A page with these painted on top of each other."""

    def draw(canvas: Canvas) -> None:
        for step in steps:
            canvas.saveState()
            step(canvas)
            canvas.restoreState()

    return drawn(draw)


def words(*lines: str, top: float = 700, grey: float = 0.0, opacity: float = 1.0, mode: int = 0) -> Step:
    """Lines of text."""

    def draw(canvas: Canvas) -> None:
        if opacity < 1:
            canvas.setFillAlpha(opacity)
        text = canvas.beginText(72, top)
        text.setFillGray(grey)
        text.setStrokeGray(grey)
        text.setTextRenderMode(mode)
        text.textLines(lines)
        canvas.drawText(text)

    return draw


def bar(bottom: float, height: float, colour: colors.Color = colors.darkblue) -> Step:
    """A filled box over the width of the page."""

    def draw(canvas: Canvas) -> None:
        canvas.setFillColor(colour)
        canvas.rect(0, bottom, A4[0], height, stroke=0, fill=1)

    return draw


def sheet(picture: Image.Image, *, bottom: float = 0, height: float = A4[1]) -> Step:
    """An image across the page. What is below shows through where it is transparent."""
    return lambda canvas: canvas.drawImage(reader_of(picture), 0, bottom, A4[0], height, mask="auto")


def in_a_form(*steps: Step, opacity: float = 1.0) -> Step:
    """The steps inside a form XObject."""

    def draw(canvas: Canvas) -> None:
        canvas.beginForm("thing")
        for step in steps:
            step(canvas)
        canvas.endForm()
        canvas.setFillAlpha(opacity)
        canvas.translate(20, -30)
        canvas.doForm("thing")

    return draw


def on_a_layer(pdf: bytes) -> bytes:
    """The PDF with its first page on an optional content layer that is on."""
    with pikepdf.open(io.BytesIO(pdf)) as opened:
        layer = opened.make_indirect(pikepdf.Dictionary(Type=pikepdf.Name.OCG, Name="Words"))
        opened.Root.OCProperties = pikepdf.Dictionary(OCGs=[layer], D=pikepdf.Dictionary(ON=[layer]))
        page = opened.pages[0]
        page.Resources.Properties = pikepdf.Dictionary(Words=layer)
        page.contents_add(b"/OC /Words BDC", prepend=True)
        page.contents_add(b"EMC")
        return _saved(opened)


def turned(pdf: bytes) -> bytes:
    """The PDF with its first page rotated and cropped."""
    with pikepdf.open(io.BytesIO(pdf)) as opened:
        page = opened.pages[0]
        page.Rotate = 90
        page.CropBox = [30, 40, 580, 830]
        return _saved(opened)


def garbled(lines: Sequence[str], mapping: Callable[[int], int]) -> bytes:
    """Lines that look right, in a font that maps each character to another."""

    def draw(canvas: Canvas) -> None:
        for at, line in enumerate(lines):
            canvas.drawString(72, 760 - 20 * at, line)

    codes = "".join(f"<{code:02X}> <{mapping(code):04X}>\n" for code in range(32, 127))
    table = CHARACTER_MAP.format(codes=codes)
    with pikepdf.open(io.BytesIO(drawn(draw))) as pdf:
        for font in pdf.pages[0].Resources.Font.values():
            font.ToUnicode = pdf.make_stream(table.encode())
        return _saved(pdf)


def locked(pdf: bytes, *, user: str, owner: str = "owner") -> bytes:
    """The PDF with passwords. An empty user password opens it, with restrictions."""
    with pikepdf.open(io.BytesIO(pdf)) as opened:
        out = io.BytesIO()
        opened.save(out, encryption=pikepdf.Encryption(user=user, owner=owner))
        return out.getvalue()


def bomb(*, size_bytes: int) -> bytes:
    """A page whose few kilobytes of content decompress to this size."""
    packer = zlib.compressobj(1)
    block = bytes(1024 * 1024)
    packed = b"".join([*(packer.compress(block) for _ in range(size_bytes // len(block))), packer.flush()])
    with pikepdf.new() as pdf:
        page = pdf.add_blank_page()
        content = pdf.make_stream(b"")
        filters = pikepdf.Array([pikepdf.Name.FlateDecode, pikepdf.Name.FlateDecode])
        content.write(zlib.compress(packed, 9), filter=filters)
        page.Contents = content
        return _saved(pdf)


def with_contents(contents: str) -> bytes:
    """A page that these operators draw."""
    with pikepdf.new() as pdf:
        pdf.add_blank_page().Contents = pdf.make_stream(contents.encode())
        return _saved(pdf)


def without_pages() -> bytes:
    """A PDF that opens and is empty."""
    with pikepdf.new() as pdf:
        return _saved(pdf)


def saved_as(picture: Image.Image, kind: str, **options: object) -> bytes:
    """A picture as a file."""
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def _saved(pdf: pikepdf.Pdf) -> bytes:
    out = io.BytesIO()
    pdf.save(out)
    return out.getvalue()
