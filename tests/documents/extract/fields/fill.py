"""Build pages as readers produce them, and fill a schema from them without the sandbox."""

import io
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from penstock.documents.extract.fields.find import FieldsResult, find_fields
from penstock.documents.pages import Citation, Page, Span, write_page
from penstock.kernel.json_object import JsonObject

TEXT: JsonObject = {"type": "string"}
NUMBER: JsonObject = {"type": "number"}
INTEGER: JsonObject = {"type": "integer"}
BOOLEAN: JsonObject = {"type": "boolean"}
DATE: JsonObject = {"type": "string", "format": "date"}


def record(**properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties}


def array(**properties: Any) -> JsonObject:
    return {"type": "array", "items": record(**properties)}


def find(schema: Any, *pages: Page) -> FieldsResult:
    lines = io.BytesIO(b"".join(map(write_page, pages)))
    return find_fields(lines, msgspec.json.encode(schema))


def fill(schema: Any, *pages: Page) -> Any:
    found = find(schema, *pages)
    assert found.schema_error is None
    return found.value


def one(schema: JsonObject, text: str) -> Any:
    """The value of a single field whose label precedes the text."""
    return fill(record(it=schema), lines(f"It: {text}"))["it"]


def written(*markdown: str) -> list[Page]:
    """Pages that are only markdown."""
    return [Page(number=at, origin="file", markdown=text) for at, text in enumerate(markdown, 1)]


def lines(*texts: str, number: int = 1) -> Page:
    """A page of lines without boxes."""
    return Page(
        number=number, origin="file", markdown="\n\n".join(texts), spans=tuple(Span(text=text) for text in texts)
    )


def boxed(*rows: Sequence[tuple[str, float]], number: int = 1, markdown: str = "") -> Page:
    """A page of rows, each with texts and their left edges. A letter is 6 wide, a row 15 high."""
    spans = [
        Span(text=text, box=(left, 100 + 15.0 * at, left + 6 * len(text), 110 + 15.0 * at))
        for at, row in enumerate(rows)
        for text, left in row
    ]
    return Page(
        number=number,
        origin="ocr",
        markdown=markdown or "\n\n".join(span.text for span in spans),
        spans=tuple(spans),
        width=600,
        height=800,
    )


def tabled(*rows: Sequence[str], number: int = 1, before: Iterable[str] = ()) -> Page:
    """A page with a table whose cells have boxes, and lines before it."""
    cells = [
        Span(
            text=text,
            box=(100.0 * column, 15.0 * row, 100.0 * column + 90, 15.0 * row + 10),
            table=0,
            row=row,
            column=column,
        )
        for row, texts in enumerate(rows)
        for column, text in enumerate(texts)
        if text
    ]
    spans = (*(Span(text=text.lstrip("# ")) for text in before), *cells)
    return Page(number=number, origin="text", markdown="\n".join(before), spans=spans, width=600, height=800)


def citation(found: FieldsResult, pointer: str) -> Citation:
    return next(citation for citation in found.citations if citation.pointer == pointer)
