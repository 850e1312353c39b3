"""How the demo's two invoices were made: `python -m tests.cli.drawing_samples FONT.otf FOLDER`.

The first has a text layer. The second is the picture of a page, a little askew and grey as scans are, with Chinese in
it; the font must know both scripts. The files in the package are kept as they are: nobody needs this to run anything.
"""

import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter, ImageFont
from reportlab.lib.pagesizes import A4, A5
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas

DPI = 150
COLUMNS = ("Description", "Qty", "Unit price", "Amount")
TEXT = {
    "Invoice No": "MS-2026-0117",
    "Invoice Date": "2026-03-12",
    "Seller": "Mill Street Paper Works",
    "Bill to": "Harbour Books Ltd",
}
TEXT_ITEMS = (
    ("Laid paper, A4", "12", "18.50", "222.00"),
    ("Cover board", "40", "2.75", "110.00"),
    ("Binding thread", "6", "9.20", "55.20"),
)
SCAN = {
    "Invoice No": "RM-88213",
    "Invoice Date": "2026-04-02",
    "Seller": "Riverside Mill 河畔造纸厂",
    "Bill to": "Harbour Books Ltd",
}
SCAN_ITEMS = (
    ("Rice paper 宣纸", "30", "4.20", "126.00"),
    ("Ink stone 砚台", "2", "65.00", "130.00"),
)


def draw_text_pdf(path: Path) -> None:
    """An invoice as a program prints it."""
    sheet = Canvas(str(path), pagesize=A4, invariant=1)
    sheet.setTitle("Invoice MS-2026-0117")
    sheet.setFont("Helvetica-Bold", 22)
    sheet.drawString(20 * mm, 265 * mm, "Invoice")
    y = 248.0
    for label, value in TEXT.items():
        sheet.setFont("Helvetica", 11)
        sheet.drawString(20 * mm, y * mm, f"{label}: {value}")
        y -= 7
    y -= 8
    for row in (COLUMNS, *TEXT_ITEMS):
        sheet.setFont("Helvetica-Bold" if row is COLUMNS else "Helvetica", 11)
        sheet.drawString(20 * mm, y * mm, row[0])
        for right, cell in zip((115, 150, 185), row[1:], strict=True):
            sheet.drawRightString(right * mm, y * mm, cell)
        sheet.line(20 * mm, (y - 2) * mm, 185 * mm, (y - 2) * mm)
        y -= 8
    sheet.setFont("Helvetica", 11)
    sheet.drawRightString(185 * mm, (y - 4) * mm, "Total: 387.20 EUR")
    sheet.setFont("Helvetica", 9)
    sheet.drawString(20 * mm, 30 * mm, "Payable within 30 days. Thank you for your order.")
    sheet.save()


def draw_scan(path: Path, font_file: Path) -> None:
    """An invoice as a scanner sees it, in a PDF without any text."""
    width, height = (round(side / 72 * DPI) for side in A5)
    page = Image.new("L", (width, height), 250)
    pen = ImageDraw.Draw(page)

    def font(points: float) -> ImageFont.FreeTypeFont:
        return ImageFont.truetype(str(font_file), round(points / 72 * DPI))

    pen.text((70, 70), "Invoice 发票", font=font(20), fill=30)
    y = 170
    for label, value in SCAN.items():
        pen.text((70, y), f"{label}: {value}", font=font(11), fill=35)
        y += 44
    y += 40
    for row in (COLUMNS, *SCAN_ITEMS):
        pen.text((70, y), row[0], font=font(11), fill=35)
        for right, cell in zip((440, 610, 790), row[1:], strict=True):
            pen.text((right, y), cell, font=font(11), fill=35, anchor="ra")
        pen.line((70, y + 34, 790, y + 34), fill=120, width=1)
        y += 52
    pen.text((70, y + 40), "Total: 256.00 EUR", font=font(12), fill=30)
    _save_picture(path, _as_scanned(page))


def _as_scanned(page: Image.Image) -> Image.Image:
    dice = random.Random(7)
    turned = page.rotate(0.4, resample=Image.Resampling.BICUBIC, fillcolor=250)
    speckled = turned.load()
    assert speckled is not None
    for _ in range(900):
        speckled[dice.randrange(turned.width), dice.randrange(turned.height)] = dice.randrange(150, 240)
    return turned.filter(ImageFilter.GaussianBlur(0.5))


def _save_picture(path: Path, page: Image.Image) -> None:
    picture = path.with_suffix(".jpg")
    page.save(picture, quality=60)
    sheet = Canvas(str(path), pagesize=A5, invariant=1)
    sheet.drawImage(str(picture), 0, 0, *A5)
    sheet.save()
    picture.unlink()


if __name__ == "__main__":
    draw_text_pdf(Path(sys.argv[2]) / "invoice.pdf")
    draw_scan(Path(sys.argv[2]) / "scan.pdf", Path(sys.argv[1]))
