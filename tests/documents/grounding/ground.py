"""Results held against pages, without the sandbox."""

import io
from typing import Any

import msgspec

from penstock.documents.grounding import Grounded, ground_value
from penstock.documents.pages import Page, Place, write_page
from tests.documents.extract.fields.fill import lines


def ground(value: Any, *pages: Page, schema: Any = None, null_ungrounded: bool = False) -> Grounded:
    file = io.BytesIO(b"".join(map(write_page, pages)))
    return ground_value(file, msgspec.json.encode(value), null_ungrounded, msgspec.json.encode(schema or {}))


def is_grounded(value: Any, *texts: str) -> bool:
    """Whether a value stands in lines of text."""
    [place] = ground({"it": value}, lines(*texts)).places
    return place.grounded


def place(found: Grounded, pointer: str) -> Place:
    return next(place for place in found.places if place.pointer == pointer)


def flagged(found: Grounded) -> set[str]:
    return {place.pointer for place in found.places if not place.grounded}
