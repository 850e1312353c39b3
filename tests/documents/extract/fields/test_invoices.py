"""Whole invoices as readers produce them: a text layer in many parts, OCR as one table."""

import io

from penstock.documents.pages import Box, Page, Span
from penstock.documents.pdf.text_layer import TextLayers, read_text_layers
from tests.documents import pdf_files
from tests.documents.extract.fields.fill import DATE, INTEGER, NUMBER, TEXT, array, citation, find, record


def titled(title: str, schema: dict[str, object]) -> dict[str, object]:
    return {**schema, "title": title}


def page_of(lines: list[tuple[str, Box]], *tables: list[list[tuple[str, Box] | None]]) -> Page:
    cells = [
        Span(text=cell[0], box=cell[1], table=number, row=row, column=column)
        for number, rows in enumerate(tables)
        for row, texts in enumerate(rows)
        for column, cell in enumerate(texts)
        if cell is not None
    ]
    spans = (*(Span(text=text, box=box) for text, box in lines), *cells)
    return Page(
        number=1, origin="text", markdown="\n".join(span.text for span in spans), spans=spans, width=595, height=842
    )


def test_an_english_invoice_whose_table_the_reader_split():
    page = page_of(
        [
            ("Invoice No.", (230, 110, 280, 121)),
            ("Invoice date", (230, 128, 284, 139)),
            ("Due date", (230, 146, 271, 157)),
            ("Currency", (230, 164, 271, 175)),
            ("Invoice", (267, 79, 329, 100)),
            ("INV-2026-17", (296, 110, 353, 121)),
            ("5 January 2026", (296, 128, 365, 139)),
            ("2026-02-04", (296, 146, 347, 157)),
            ("EUR", (296, 164, 317, 175)),
            ("Description", (206, 202, 256, 213)),
            ("Blue paint", (206, 220, 251, 231)),
            ("Brush", (206, 238, 232, 249)),
            ("VAT", (206, 274, 226, 285)),
            ("Total", (206, 292, 228, 303)),
            ("209.00", (350, 274, 381, 285)),
            ("1,309.00", (350, 292, 389, 303)),
        ],
        [
            [("Qty", (268, 202, 284, 214)), ("Unit price", (296, 202, 338, 214)), ("Amount", (350, 202, 384, 214))],
            [("2", (268, 220, 274, 232)), ("12.50", (296, 220, 321, 232)), ("25.00", (350, 220, 375, 232))],
            [("1", (268, 238, 274, 250)), ("1,075.00", (296, 238, 335, 250)), ("1,075.00", (350, 238, 389, 250))],
        ],
    )
    schema = record(
        invoice_number=TEXT,
        invoice_date=DATE,
        due_date=DATE,
        currency={"enum": ["EUR", "USD"]},
        items=array(description=TEXT, quantity=INTEGER, unit_price=NUMBER, amount=NUMBER),
        vat=NUMBER,
        total=NUMBER,
        iban=TEXT,
    )
    found = find(schema, page)
    assert found.value == {
        "invoice_number": "INV-2026-17",
        "invoice_date": "2026-01-05",
        "due_date": "2026-02-04",
        "currency": "EUR",
        "items": [
            {"description": "Blue paint", "quantity": 2, "unit_price": 12.5, "amount": 25},
            {"description": "Brush", "quantity": 1, "unit_price": 1075, "amount": 1075},
        ],
        "vat": 209,
        "total": 1309,
        "iban": None,
    }
    assert citation(found, "/total").box == (350, 292, 389, 303)
    assert found.ambiguous == ()


def test_a_chinese_invoice_that_ocr_reads_as_one_table():
    page = page_of(
        [
            ("增值税电子普通发票", (448, 44, 669, 75)),
            ("销售方", (100, 572, 177, 606)),
            ("名称：北京果蔬公司", (102, 618, 319, 645)),
        ],
        [
            [
                ("发票代码：044001900111", (102, 90, 382, 117)),
                None,
                None,
                ("发票号码：12345678", (716, 89, 946, 119)),
                None,
            ],
            [None, None, None, ("开票日期：2026年01月05日", (716, 133, 1017, 163)), None],
            [("购买方", (97, 174, 177, 210)), None, None, None, None],
            [("名称：上海某某科技有限公司", (102, 222, 419, 249)), None, None, None, None],
            [("纳税人识别号：91310000MA1FLOXX0X", (101, 264, 521, 293)), None, None, None, None],
            [
                ("货物名称", (98, 348, 203, 385)),
                ("数量", (404, 350, 462, 385)),
                ("单价", (569, 350, 626, 385)),
                ("金额", (733, 350, 791, 385)),
                ("税率", (897, 350, 955, 385)),
            ],
            [
                ("*苹果*红富士", (100, 393, 248, 430)),
                ("100", (406, 396, 454, 427)),
                ("12.00", (568, 394, 638, 430)),
                ("1,200.00", (735, 397, 834, 428)),
                ("13%", (897, 395, 957, 428)),
            ],
            [("合计", (98, 482, 161, 519)), None, None, ("¥1,200.00", (735, 487, 845, 514)), None],
            [
                ("价税合计（大写）壹仟叁佰伍拾陆圆整", (101, 527, 560, 557)),
                None,
                None,
                ("(小写）¥1,356.00", (730, 527, 923, 560)),
                None,
            ],
        ],
    )
    schema = record(
        number=titled("发票号码", TEXT),
        date=titled("开票日期", DATE),
        buyer=titled("购买方", record(name=titled("名称", TEXT), tax_no=titled("纳税人识别号", TEXT))),
        seller=titled("销售方", record(name=titled("名称", TEXT))),
        items=array(name=titled("货物名称", TEXT), qty=titled("数量", INTEGER), amount=titled("金额", NUMBER)),
        total={"type": "number", "title": "价税合计", "x-labels": ["小写"]},
    )
    found = find(schema, page)
    assert found.value == {
        "number": "12345678",
        "date": "2026-01-05",
        "buyer": {"name": "上海某某科技有限公司", "tax_no": "91310000MA1FLOXX0X"},
        "seller": {"name": "北京果蔬公司"},
        "items": [{"name": "*苹果*红富士", "qty": 100, "amount": 1200}],
        "total": 1356,
    }
    assert citation(found, "/total").text == "¥1,356.00"


def test_an_invoice_with_its_head_right_of_the_seller_and_its_totals_at_the_edge():
    layers = read_text_layers(io.BytesIO(pdf_files.whole_invoice()), 1, 1, ())
    assert isinstance(layers, TextLayers)
    schema = record(
        invoice_number=TEXT,
        invoice_date=DATE,
        due_date=DATE,
        customer_number=TEXT,
        vat_id=TEXT,
        bill_to=TEXT,
        items=array(description=TEXT, qty=INTEGER, amount=NUMBER),
        vat=titled("VAT 19%", NUMBER),
        total={"type": "number", "x-labels": ["Total EUR", "Total"]},
        iban=TEXT,
    )
    found = find(schema, *(layer.page for layer in layers.layers if layer.page))
    assert found.value == {
        "invoice_number": "2026-0017",
        "invoice_date": "2026-03-14",
        "due_date": "2026-04-13",
        "customer_number": "C-991",
        "vat_id": "DE123456789",
        "bill_to": None,
        "items": [
            {"description": "Centrifugal pump XL-200", "qty": 2, "amount": 900},
            {"description": "Seal kit", "qty": 10, "amount": 125},
            {"description": "Installation, incl. travel", "qty": 1, "amount": 300},
        ],
        "vat": 251.75,
        "total": 1576.75,
        "iban": "DE89 3704 0044 0532 0130 00",
    }
    assert found.ambiguous == ("/bill_to",)  # any line of the address may be the value
    assert citation(found, "/vat").box == (514.4, 326.4, 545.0, 338.1)
