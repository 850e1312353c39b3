"""Tables: arrays of objects, labels with values, tables over several pages."""

from penstock.documents.pages import Page, Span
from tests.documents.extract.fields.fill import (
    DATE,
    INTEGER,
    NUMBER,
    TEXT,
    array,
    boxed,
    citation,
    fill,
    find,
    lines,
    record,
    tabled,
    written,
)

HEADER = ("Description", "Qty", "Unit price", "Amount")
ITEMS = record(items=array(description=TEXT, quantity=INTEGER, unitPrice=NUMBER, amount=NUMBER), total=NUMBER)
APPLE = {"description": "Apple", "quantity": 2, "unitPrice": 1.5, "amount": 3}
PEAR = {"description": "Pear", "quantity": 1, "unitPrice": 1000.5, "amount": 1000.5}
ROWS = (("Apple", "2", "1.50", "3.00"), ("Pear", "1", "1,000.50", "1,000.50"))


class TestAnArray:
    def test_has_an_item_for_each_row(self):
        assert fill(ITEMS, tabled(HEADER, *ROWS))["items"] == [APPLE, PEAR]

    def test_cites_each_value(self):
        found = find(ITEMS, tabled(HEADER, *ROWS))
        assert len(found.citations) == 8
        assert citation(found, "/items/1/unitPrice").box == (200, 30, 290, 40)
        assert citation(found, "/items/1/unitPrice").text == "1,000.50"

    def test_may_have_its_columns_in_any_order_and_with_others_between(self):
        page = tabled(("No.", "Amount", "Remarks", "Description"), ("1", "3", "ripe", "Apple"))
        assert fill(ITEMS, page)["items"] == [
            {"description": "Apple", "quantity": None, "unitPrice": None, "amount": 3}
        ]

    def test_has_null_where_a_cell_is_empty_or_invalid(self):
        page = tabled(HEADER, ("Apple", "a few", "", "3.00"), ("", "", "", ""), ("Pear", "1", "1", "1"))
        assert fill(ITEMS, page)["items"] == [
            {"description": "Apple", "quantity": None, "unitPrice": None, "amount": 3},
            {"description": "Pear", "quantity": 1, "unitPrice": 1, "amount": 1},
        ]

    def test_leaves_out_totals_which_are_fields_of_their_own(self):
        page = tabled(HEADER, *ROWS, ("Total", "", "", "1,003.50"))
        assert fill(ITEMS, page) == {"items": [APPLE, PEAR], "total": 1003.5}

    def test_may_have_a_title_above_its_header(self):
        assert fill(ITEMS, tabled(("Your order", "", "", ""), HEADER, *ROWS))["items"] == [APPLE, PEAR]

    def test_is_empty_where_no_table_has_its_header(self):
        assert fill(ITEMS, tabled(("City", "Zip"), ("Bonn", "53111")))["items"] == []
        assert fill(ITEMS, tabled(("Description", "City"), ("Apple", "Bonn")))["items"] == []  # one name is no header
        assert fill(ITEMS, lines("Amount: 3"))["items"] == []

    def test_continues_over_pages_with_its_header_repeated(self):
        pages = [tabled(HEADER, ROWS[0]), tabled(HEADER, ROWS[1], HEADER, ROWS[0], number=2)]
        found = find(ITEMS, *pages)
        assert found.value["items"] == [APPLE, PEAR, APPLE]
        assert [citation(found, f"/items/{at}/amount").page for at in range(3)] == [1, 2, 2]

    def test_continues_over_pages_without_a_header(self):
        footer = lines("Page 1 of 2").spans
        first = tabled(HEADER, ROWS[0])
        first = Page(number=1, origin="text", markdown="", spans=(*first.spans, *footer))
        assert fill(ITEMS, first, tabled(ROWS[1], number=2))["items"] == [APPLE, PEAR]

    def test_does_not_continue_with_a_table_of_something_else(self):
        assert fill(ITEMS, tabled(HEADER, ROWS[0]), tabled(("a", "b", "c", "d"), number=2))["items"] == [APPLE]
        assert fill(ITEMS, tabled(HEADER, ROWS[0]), tabled(("Pear", "1", "1"), number=2))["items"] == [APPLE]
        other = tabled(ROWS[1], number=2, before=["# Returned"])
        assert fill(ITEMS, tabled(HEADER, ROWS[0]), other)["items"] == [APPLE]

    def test_is_read_from_markdown_and_finds_its_boxes_in_the_lines(self):
        table = "| Description | Amount |\n|---|---:|\n| Apple | 3.00 |\n| Pear | 4.00 |"
        texts = ("Description", "Amount", "Apple", "3.00", "Pear", "4.00")
        spans = tuple(Span(text=text, box=(0, 20.0 * at, 50, 20.0 * at + 10)) for at, text in enumerate(texts))
        schema = record(items=array(description=TEXT, amount=NUMBER), amount=NUMBER)
        found = find(schema, Page(number=1, origin="text", markdown=table, spans=spans))
        assert found.value == {
            "items": [{"description": "Apple", "amount": 3}, {"description": "Pear", "amount": 4}],
            "amount": None,  # the header of a table is not the label of a single value
        }
        assert citation(found, "/items/1/amount").box == (0, 100, 50, 110)

    def test_from_markdown_tells_equal_cells_apart_by_their_order_or_not_at_all(self):
        table = "| Description | Amount |\n|---|---:|\n| Apple | 3.00 |\n| Pear | 3.00 |"
        texts = ("Description", "Amount", "Apple", "3.00", "Pear", "3.00")
        spans = [Span(text=text, box=(0, 20.0 * at, 50, 20.0 * at + 10)) for at, text in enumerate(texts)]
        schema = record(items=array(description=TEXT, amount=NUMBER))
        found = find(schema, Page(number=1, origin="text", markdown=table, spans=tuple(spans)))
        assert [citation(found, f"/items/{at}/amount").box for at in (0, 1)] == [(0, 60, 50, 70), (0, 100, 50, 110)]
        spans.append(Span(text="3.00", box=(0, 200, 50, 210)))
        found = find(schema, Page(number=1, origin="text", markdown=table, spans=tuple(spans)))
        assert [citation(found, f"/items/{at}/amount").box for at in (0, 1)] == [None, None]

    def test_goes_to_the_array_that_the_heading_names(self):
        schema = record(payments=array(date=DATE, amount=NUMBER), refunds=array(date=DATE, amount=NUMBER))
        table = "| Date | Amount |\n|---|---|\n| 2026-01-0{} | {} |\n"
        pages = written(f"## Payments\n{table.format(1, 10)}\n## Refunds\n{table.format(2, 20)}")
        assert fill(schema, *pages) == {
            "payments": [{"date": "2026-01-01", "amount": 10}],
            "refunds": [{"date": "2026-01-02", "amount": 20}],
        }

    def test_that_matches_two_arrays_equally_fills_neither(self):
        schema = record(payments=array(date=DATE, amount=NUMBER), refunds=array(date=DATE, amount=NUMBER))
        found = find(schema, tabled(("Date", "Amount"), ("2026-01-01", "10")))
        assert found.value == {"payments": [], "refunds": []}
        assert found.ambiguous == ("/payments", "/refunds")

    def test_under_its_own_name_wins_over_tables_elsewhere(self):
        schema = record(payments=array(date=DATE, amount=NUMBER))
        table = "| Date | Amount |\n|---|---|\n| 2026-01-0{} | {} |\n"
        pages = written(f"{table.format(1, 10)}\n## Payments\n{table.format(2, 20)}")
        assert fill(schema, *pages) == {"payments": [{"date": "2026-01-02", "amount": 20}]}

    def test_of_nested_objects_has_columns_for_both(self):
        schema = record(lines=array(product=record(name=TEXT, code=TEXT), amount=NUMBER))
        page = tabled(("Product name", "Product code", "Amount"), ("Apple", "A1", "3"))
        assert fill(schema, page)["lines"] == [{"product": {"name": "Apple", "code": "A1"}, "amount": 3}]

    def test_leaves_out_rows_that_are_titles_or_pairs(self):
        schema = record(items=ITEMS["properties"]["items"], vat=NUMBER)
        page = tabled(HEADER, ("Fruit", "", "", ""), *ROWS, ("VAT", "", "", "190"))
        assert fill(schema, page) == {"items": [APPLE, PEAR], "vat": 190}

    def test_may_be_in_the_middle_of_a_table_of_other_fields(self):
        schema = record(number=TEXT, items=ITEMS["properties"]["items"], total=NUMBER, terms=TEXT)
        page = tabled(
            ("ACME", "", "", "Invoice"),
            ("Number: 17", "", "Place: Bonn", ""),
            HEADER,
            *ROWS,
            ("", "", "Total", "1,003.50"),
            ("Terms: 30 days", "", "Bank: none", ""),
        )
        assert fill(schema, page) == {"number": "17", "items": [APPLE, PEAR], "total": 1003.5, "terms": "30 days"}

    def test_has_no_total_where_several_columns_have_one(self):
        assert fill(ITEMS, tabled(HEADER, *ROWS, ("Total", "3", "", "1,003.50"))) == {
            "items": [APPLE, PEAR],
            "total": None,
        }

    def test_keeps_stars_that_are_part_of_a_name(self):
        page = tabled(("Description", "Amount"), ("*Fruit*Apple", "**3**"), ("**Pear**", "4"))
        assert [(item["description"], item["amount"]) for item in fill(ITEMS, page)["items"]] == [
            ("*Fruit*Apple", 3),
            ("Pear", 4),
        ]

    def test_in_chinese(self):
        schema = record(
            items={
                "type": "array",
                "title": "明细",
                "items": record(
                    name={"type": "string", "title": "货物名称"},
                    amount={"type": "number", "title": "金额"},
                    rate={"type": "number", "title": "税率", "maximum": 1},
                ),
            },
            total={"type": "number", "title": "价税合计"},
        )
        page = tabled(
            ("货 物 名 称", "金额（元）", "税率"),
            ("苹果", "￥1,200.00", "13%"),
            ("合 计", "￥1,200.00", ""),
            ("价税合计", "¥1,356.00", ""),
        )
        assert fill(schema, page) == {"items": [{"name": "苹果", "amount": 1200, "rate": 0.13}], "total": 1356}


class TestAnArrayOfSingleValues:
    SCHEMA = record(tags={"type": "array", "items": TEXT}, sizes={"type": "array", "items": INTEGER})

    def test_is_a_list_in_a_line(self):
        assert fill(self.SCHEMA, lines("Tags: red, 小、blue", "Sizes: 1; 2; x")) == {
            "tags": ["red", "小", "blue"],
            "sizes": [1, 2],
        }

    def test_is_a_list_under_a_heading(self):
        page = written("## Tags\n\n- red\n- blue\n\n## Other\n\n- green\n\n## Sizes\n\n1. 40\n2. 41\n")
        found = find(self.SCHEMA, *page)
        assert found.value == {"tags": ["red", "blue"], "sizes": [40, 41]}
        assert citation(found, "/tags/1").text == "blue"

    def test_is_a_column(self):
        assert fill(self.SCHEMA, tabled(("Tags", "Other"), ("red", "x"), ("blue", "y")))["tags"] == ["red", "blue"]


class TestLabelsInCells:
    SCHEMA = record(name=TEXT, age=INTEGER)

    def test_have_their_values_beside_them(self):
        assert fill(self.SCHEMA, tabled(("Name", "Bob"), ("City", "Bonn"), ("Age", "5"))) == {"name": "Bob", "age": 5}

    def test_may_occur_twice_in_a_row(self):
        assert fill(self.SCHEMA, tabled(("Name:", "Bob", "Age:", "5"), ("City:", "Bonn", "", ""))) == {
            "name": "Bob",
            "age": 5,
        }

    def test_have_their_values_below_them(self):
        assert fill(self.SCHEMA, tabled(("Name", "Age"), ("Bob", "5"))) == {"name": "Bob", "age": 5}

    def test_over_several_rows_have_no_single_value(self):
        found = find(self.SCHEMA, tabled(("Name", "Age"), ("Bob", "5"), ("Al", "6")))
        assert (found.value, found.ambiguous) == ({"name": None, "age": None}, ("/age", "/name"))

    def test_may_share_their_cell_with_the_value(self):
        assert fill(self.SCHEMA, tabled(("Name: Bob", "Age: 5"))) == {"name": "Bob", "age": 5}

    def test_belong_to_the_object_that_their_column_names(self):
        schema = record(bill_to=record(name=TEXT), ship_to=record(name=TEXT))
        page = tabled(("Bill to", "Ship to"), ("Name: Ann", "Name: Bob"))
        assert fill(schema, page) == {"bill_to": {"name": "Ann"}, "ship_to": {"name": "Bob"}}

    def test_belong_to_the_object_that_their_row_names(self):
        name = {"type": "string", "title": "名称"}
        schema = record(buyer={**record(name=name), "title": "购买方"}, seller={**record(name=name), "title": "销售方"})
        page = tabled(("购买方", "名称：甲公司"), ("", "电话：1"), ("销售方", "名称：乙公司"))
        assert fill(schema, page) == {"buyer": {"name": "甲公司"}, "seller": {"name": "乙公司"}}


def test_a_cell_with_huge_indexes_makes_no_huge_table():
    far = Span(text="5", table=0, row=2**31, column=2**31)
    page = Page(number=1, origin="text", markdown="", spans=(Span(text="Age", table=0, row=0, column=0), far))
    assert fill(record(age=INTEGER), page) == {"age": None}


class TestTwoHeadersSideBySide:
    def test_have_their_values_below(self):
        page = tabled(["Bill to", "Ship to"], ["Jane Doe Ltd.", "Jane Doe Warehouse"])
        assert fill(record(bill_to=TEXT), page) == {"bill_to": "Jane Doe Ltd."}

    def test_are_not_values_of_each_other(self):
        pages = (
            tabled(["Bill to", "Ship to"], ["Jane", "Dock 9"], ["High Street", "Dover"]),
            tabled(["Bill to", "Consignee"], ["Jane", "Bob"]),
            tabled(["Addresses", ""], ["Bill to", "Consignee"], ["Jane", "Bob"]),
        )
        for page in pages:
            found = find(record(bill_to=TEXT), page)
            assert (found.value, found.ambiguous) == ({"bill_to": None}, ("/bill_to",))


def test_a_rate_before_an_amount_is_not_taken_for_it():
    assert fill(record(vat=NUMBER), tabled(["VAT", "19%", "251.75"])) == {"vat": None}
    assert fill(record(vat=NUMBER), tabled(["Net", "1,325.00"], ["VAT 19%", "251.75"])) == {"vat": 251.75}


class TestABracketAfterALabelInACell:
    def test_is_a_part_of_the_label(self):
        page = tabled(("VAT (20%)", "65.38"), ("Total", "404.28"))
        assert fill(record(vat=NUMBER, total=NUMBER), page) == {"vat": 65.38, "total": 404.28}

    def test_alone_in_a_cell_is_a_negative_amount(self):
        assert fill(record(vat=NUMBER), tabled(("VAT", "(65.38)"), ("Total", "1"))) == {"vat": -65.38}


class TestAnEmptyCell:
    SCHEMA = record(passport_no=TEXT, age=INTEGER)

    def test_after_a_label_is_not_a_value(self):
        for below in (("Address", "High Street", "City", "Rome"), ("Born in", "Cork", "Issued", "2020")):
            page = tabled(("Passport No.", "", "Visa type", "B1"), below)
            assert fill(self.SCHEMA, page)["passport_no"] is None

    def test_between_two_labels_is_not_a_value(self):
        (page,) = written("| Passport No. |  | Visa type |  |\n|---|---|---|---|\n| Born in | Cork | Age | 5 |")
        assert fill(self.SCHEMA, page) == {"passport_no": None, "age": 5}

    def test_below_a_label_is_not_a_value(self):
        (page,) = written("| Visa type | Age | Born in |\n|---|---|---|\n| B1 |  | Cork |\n| B2 | 5 | Rome |")
        assert fill(self.SCHEMA, page)["age"] is None

    def test_may_precede_a_value_at_the_end_of_a_row(self):
        page = tabled(("ACME", "", "Passport No.", "", "A-17"), ("", "Born in", "", "Cork", ""))
        assert fill(self.SCHEMA, page)["passport_no"] == "A-17"

    def test_may_precede_the_only_number(self):
        (page,) = written("| Age |  | 5 |  |\n|---|---|---|---|\n| Born in | Cork | Visa | B1 |")
        assert fill(self.SCHEMA, page)["age"] == 5


class TestAValueThatLooksLikeALabel:
    SCHEMA = record(preferred_contact={"enum": ["Email", "Phone", "Letter"]}, email=TEXT)

    def test_is_the_value_of_the_label_that_has_it_as_an_option(self):
        for page in (
            tabled(("Preferred contact", "Email"), ("Phone", "123")),
            boxed([("Preferred contact", 50), ("Email", 200)], [("Phone", 50), ("123", 200)]),
        ):
            assert fill(self.SCHEMA, page) == {"preferred_contact": "Email", "email": None}

    def test_does_not_hide_the_label(self):
        page = tabled(("Preferred contact", "Email", "Email", "a@b.example"))
        assert fill(self.SCHEMA, page) == {"preferred_contact": "Email", "email": "a@b.example"}

    def test_is_a_label_in_a_row_of_headers(self):
        page = tabled(("Preferred contact", "Email", "Fax"), ("Phone", "a@b.example", "5"))
        assert fill(self.SCHEMA, page) == {"preferred_contact": None, "email": "a@b.example"}

    def test_is_a_label_behind_an_empty_cell(self):
        page = tabled(("Preferred contact", "", "Email", "a@b.example"), ("Fax", "5", "Address", "Bonn"))
        assert fill(self.SCHEMA, page) == {"preferred_contact": None, "email": "a@b.example"}


class TestACellOfSeveralLines:
    SCHEMA = record(invoice_number=TEXT, invoice_date=DATE, address=TEXT)

    def test_has_the_pairs_of_each_line(self):
        said = "Hello", "Invoice number: FT-30992", "Invoice date: 2026-02-27"
        for page in (tabled(("ACME", "\n".join(said))), *written(f"| ACME | {'<br>'.join(said)} |\n|---|---|")):
            assert fill(self.SCHEMA, page) == {
                "invoice_number": "FT-30992",
                "invoice_date": "2026-02-27",
                "address": None,
            }

    def test_keeps_the_lines_that_continue_a_value(self):
        page = tabled(("ACME", "Address: Flat 4\nDublin\nInvoice number: 5"))
        assert fill(self.SCHEMA, page)["address"] == "Flat 4\nDublin"
