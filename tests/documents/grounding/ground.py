"""Ground results in pages without the sandbox."""

import io
from typing import Any

import msgspec

from penstock.documents.grounding import Grounded, ground_value
from penstock.documents.pages import Citation, Page, write_page
from tests.documents.extract.fields.fill import lines


def ground(value: Any, *pages: Page, schema: Any = None, null_ungrounded: bool = False) -> Grounded:
    file = io.BytesIO(b"".join(map(write_page, pages)))
    return ground_value(file, msgspec.json.encode(value), null_ungrounded, msgspec.json.encode(schema or {}))


def is_grounded(value: Any, *texts: str) -> bool:
    """Whether a value is grounded in lines of text."""
    [citation] = ground({"it": value}, lines(*texts)).citations
    return citation.grounded


def citation(found: Grounded, pointer: str) -> Citation:
    return next(citation for citation in found.citations if citation.pointer == pointer)


def flagged(found: Grounded) -> set[str]:
    return {citation.pointer for citation in found.citations if not citation.grounded}
