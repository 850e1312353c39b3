"""The text layer of a PDF: its markdown and boxes, and when it is not trusted."""

import io
from pathlib import Path

import pytest

from penstock.documents.pages import Page, Span
from penstock.documents.pdf.survey import PdfSurvey, survey_pdf
from penstock.documents.pdf.text_layer import TextLayer, TextLayers, read_text_layers
from tests.documents import pdf_files

WORDS = "Words of an old machine that nobody can see on the page at all. "
CIPHER = "bcdfghjklmnpqrstvwxz"


def layers_of(pdf: bytes) -> tuple[TextLayer, ...]:
    seen = survey_pdf(io.BytesIO(pdf), 5000)
    assert isinstance(seen, PdfSurvey)
    layers = read_text_layers(io.BytesIO(pdf), 1, seen.pages, seen.suspects)
    assert isinstance(layers, TextLayers)
    return layers.layers


def page_of(pdf: bytes) -> Page:
    (layer,) = layers_of(pdf)
    assert layer.page is not None, layer.distrust
    return layer.page


class TestAPage:
    def test_keeps_headings_tables_and_lists(self):
        markdown = page_of(pdf_files.report()).markdown
        assert "# Annual report of the harbour\n" in markdown
        assert "## Ships by month\n" in markdown
        assert "| February | 9 | 2,150 |" in markdown
        assert all(f"- {plan}" in markdown for plan in pdf_files.PLANS)

    def test_has_a_box_for_each_line_and_cell(self):
        page = page_of(pdf_files.report())
        title = next(span for span in page.spans if span.text == "Annual report of the harbour")
        assert title.box is not None
        assert (page.width, page.height) == pytest.approx((595.28, 841.89), abs=0.01)
        assert 70 < title.box[0] < title.box[2] < page.width
        assert 70 < title.box[1] < title.box[3] < 110
        cells = [span for span in page.spans if span.table == 0]
        assert [span.text for span in cells] == [cell for row in pdf_files.SHIPS for cell in row]
        assert {(span.row, span.column) for span in cells} == {(row, column) for row in range(4) for column in range(3)}
        assert all(span.box is not None for span in page.spans)

    def test_of_two_columns_is_read_down_the_first_and_then_the_second(self):
        left = " ".join(f"left{at}" for at in range(90))
        right = " ".join(f"right{at}" for at in range(90))
        page = page_of(pdf_files.two_columns(left, right))
        assert page.markdown.split() == [*left.split(), *right.split()]
        assert " ".join(span.text for span in page.spans).split() == [*left.split(), *right.split()]

    def test_keeps_lines_apart_that_begin_with_a_label(self):
        def draw(canvas):
            for at, line in enumerate(["Invoice No: 7", "Seller: Mill Street", "Bill to: Harbour Books"]):
                canvas.drawString(72, 700 - 14 * at, line)

        assert (
            page_of(pdf_files.drawn(draw)).markdown == "Invoice No: 7\n\nSeller: Mill Street\n\nBill to: Harbour Books"
        )

    def test_has_lines_where_labels_and_values_were_taken_for_two_cells(self):
        page = page_of(pdf_files.whole_invoice())
        lines = {span.text: span.box for span in page.spans if span.table is None and span.box}
        for at, (label, value) in enumerate(pdf_files.HEAD):
            assert lines[label][1] == lines[value][1] == pytest.approx(67.4 + 14 * at, abs=0.1)
            assert f"| {label} | {value} |\n" in page.markdown
        assert "VAT ID: DE123456789" in lines

    def test_keeps_a_row_together_whose_texts_go_on_in_the_next_line(self):
        rows = [["Part", "Use", "Qty"], ["Pump\nXL-200", "For deep\nwells", "2"], ["Seal", "For pumps", "10"]]
        cells = [span for span in page_of(pdf_files.table(rows)).spans if span.table == 0]
        assert [span.text for span in cells if span.row == 1] == ["Pump XL-200", "For deep wells", "2"]

    def test_joins_the_runs_of_a_line_with_a_bold_word(self):
        def draw(canvas):
            line = canvas.beginText(72, 700)
            for font, words in (
                ("Helvetica", "The total is "),
                ("Helvetica-Bold", "1,250.00"),
                ("Helvetica", " euros."),
            ):
                line.setFont(font, 11)
                line.textOut(words)
            canvas.drawText(line)

        assert [span.text for span in page_of(pdf_files.drawn(draw)).spans] == ["The total is 1,250.00 euros."]

    def test_cannot_forge_the_marker_between_pages(self):
        assert "\n<!-- page" not in f"\n{page_of(pdf_files.pages_of('<!-- page 7 -->')).markdown}"

    def test_is_one_of_the_requested_range(self):
        pdf = pdf_files.pages_of(*(f"This is page {at}" for at in range(1, 8)))
        layers = read_text_layers(io.BytesIO(pdf), 3, 5, ())
        assert isinstance(layers, TextLayers)
        pages = [layer.page for layer in layers.layers if layer.page]
        assert [(page.number, page.markdown) for page in pages] == [(at, f"This is page {at}") for at in (3, 4, 5)]

    def test_opens_with_an_empty_password(self):
        assert "| March | 17 | 5,020 |" in page_of(pdf_files.locked(pdf_files.report(), user="")).markdown


class TestALayerIsNotTrusted:
    def test_where_there_is_none(self):
        assert [layer.distrust for layer in layers_of(pdf_files.scan_of(pdf_files.INVOICE))] == ["none"]

    def test_where_a_stamp_is_all_there_is_on_a_picture(self):
        pdf = pdf_files.scan_of(pdf_files.INVOICE, layer="Scanned by a machine", invisible=False)
        assert [layer.distrust for layer in layers_of(pdf)] == ["sparse"]

    def test_where_it_is_invisible(self):
        pdf = pdf_files.scan_of(pdf_files.INVOICE * 2, layer="\n".join([WORDS] * 8))
        assert [layer.distrust for layer in layers_of(pdf)] == ["invisible"]

    def test_where_it_is_invisible_and_there_is_no_picture(self):
        def draw(canvas):
            words = canvas.beginText(72, 700)
            words.setTextRenderMode(3)
            words.textLines([WORDS] * 8)
            canvas.drawText(words)

        assert [layer.distrust for layer in layers_of(pdf_files.drawn(draw))] == ["invisible"]

    @pytest.mark.parametrize(
        "mapping",
        [lambda code: ord(CIPHER[code % len(CIPHER)]), lambda code: 0xC0 + code % 60, lambda _: 0xFFFD],
        ids=["other letters", "mojibake", "no letters"],
    )
    def test_where_its_font_maps_to_wrong_characters(self, mapping):
        lines = [pdf_files.PROSE] * 8
        truth = " ".join(pdf_files.PROSE.split())
        (layer,) = layers_of(pdf_files.garbled(lines, mapping))
        assert layer.distrust == "garbled" or (layer.page is not None and truth in layer.page.markdown)
        assert CIPHER[5] * 2 not in (layer.page.markdown if layer.page else "")

    def test_where_every_letter_is_mapped_to_another(self):
        (layer,) = layers_of(pdf_files.garbled([pdf_files.PROSE] * 8, lambda code: ord(CIPHER[code % len(CIPHER)])))
        assert layer.distrust == "garbled"


class TestALayerIsTrusted:
    def test_over_a_background_picture_when_it_can_be_seen(self):
        pdf = pdf_files.scan_of(pdf_files.INVOICE * 2, layer="\n".join([WORDS] * 8), invisible=False)
        (layer,) = layers_of(pdf)
        assert layer.page is not None
        assert "old machine" in layer.page.markdown

    def test_when_it_is_short_and_alone(self):
        assert page_of(pdf_files.pages_of("Yes.")).spans == (
            Span(text="Yes.", box=page_of(pdf_files.pages_of("Yes.")).spans[0].box),
        )


class TestAFileWithAName:
    def test_in_pdf_is_opened_by_it_and_read_like_its_content(self, tmp_path: Path):
        pdf = pdf_files.pages_of("This is page one", "This is page two", "This is page three")
        (tmp_path / "a.pdf").write_bytes(pdf)
        with (tmp_path / "a.pdf").open("rb") as file:
            assert read_text_layers(file, 1, 2, [2]) == read_text_layers(io.BytesIO(pdf), 1, 2, [2])
            assert file.tell() == 0

    def test_is_read_as_a_whole_if_it_is_called_otherwise(self, tmp_path: Path):
        (tmp_path / "a.part").write_bytes(pdf_files.report())
        with (tmp_path / "a.part").open("rb") as file:
            assert isinstance(read_text_layers(file, 1, 1, []), TextLayers)

    def test_with_bytes_before_its_header_can_be_read(self, tmp_path: Path):
        (tmp_path / "a.pdf").write_bytes(b"bytes of a mail gateway\n" + pdf_files.report())
        with (tmp_path / "a.pdf").open("rb") as file:
            layers = read_text_layers(file, 1, 1, [])
        assert isinstance(layers, TextLayers)
        assert layers.layers[0].page is not None
