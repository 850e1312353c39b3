"""Planted wrong values that grounding flags, and true values that it flags, as ratios of all.

Two sets of documents with known facts: those that the rules were tuned on, and unseen ones. Each result is grounded as
it is, and then several times with wrong values of eleven kinds inserted. A flag on a true value counts as false, even
next to a wrong value.
"""

import io
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import msgspec

from bench import databases, etl_ground_truth_tuned, etl_ground_truth_tuned_more, etl_ground_truth_unseen
from bench.comparison import Finding, summary
from bench.etl_documents import write_report
from bench.etl_ground_truth import Facts
from bench.etl_wrong_values import plant
from penstock.documents.grounding import Grounded, ground_value
from penstock.documents.pages import write_page
from penstock.documents.pdf.text_layer import TextLayers, read_text_layers

SEEDS = {"known": 11, "fresh": 2027}
PLANTINGS = 6  # of each document
MIN_FLAGGED = 0.8
MAX_FALSE = 0.02
REPORT_PAGES, REPORT_VALUES = 100, 200
MAX_SECONDS = 1.0


@dataclass(kw_only=True)
class Score:
    """Counts of flagged values."""

    planted: Counter[str] = field(default_factory=Counter)
    flagged: Counter[str] = field(default_factory=Counter)
    true: int = 0
    false_flags: int = 0
    documents: int = 0

    def hear(self, found: Grounded, plants: dict[str, str]) -> None:
        """Count the citations of one result."""
        for citation in found.citations:
            kind = plants.get(citation.pointer)
            if kind is None:
                self.true += 1
                self.false_flags += not citation.grounded
            else:
                self.planted[kind] += 1
                self.flagged[kind] += not citation.grounded


def run() -> list[Finding]:
    """Both sets, and the time of a long document."""
    known = chain(
        etl_ground_truth_tuned.documents(SEEDS["known"]), etl_ground_truth_tuned_more.documents(SEEDS["known"])
    )
    fresh = etl_ground_truth_unseen.documents(SEEDS["fresh"])
    return [*_findings("known", known), *_findings("fresh", fresh), _speed()]


def _findings(name: str, documents: Iterable[Facts]) -> Iterator[Finding]:
    score = scored(documents, random.Random(SEEDS[name]))
    share = score.flagged.total() / score.planted.total()
    what = f"planted wrong values that are flagged, {name} documents, beside all"
    kinds = {kind: round(score.flagged[kind] / score.planted[kind], 3) for kind in sorted(score.planted)}
    flagged = summary(what, "of 1", [(1, share)], at_least=MIN_FLAGGED)
    yield flagged.noted(documents=score.documents, planted=score.planted.total(), **kinds)
    what = f"true values that are flagged, {name} documents, beside all"
    false = summary(what, "of 1", [(1, score.false_flags / score.true)], at_most=MAX_FALSE)
    yield false.noted(true_values=score.true, flagged=score.false_flags)


def scored(documents: Iterable[Facts], dice: random.Random) -> Score:
    """Ground each document as it is, and with wrong values."""
    score = Score()
    for facts in documents:
        score.documents += 1
        score.hear(grounded(facts, facts.value), {})
        for _ in range(PLANTINGS):
            planted = plant(facts, dice)
            score.hear(grounded(facts, planted.value), {each.pointer: each.kind for each in planted.plants})
    return score


def grounded(facts: Facts, value: object) -> Grounded:
    """Ground a result without the sandbox."""
    pages = io.BytesIO(b"".join(map(write_page, facts.pages)))
    return ground_value(pages, msgspec.json.encode(value), False, msgspec.json.encode(facts.schema))


def _speed() -> Finding:
    """A report of a hundred pages against two hundred values, in seconds of CPU; also where labels of the schema stand
    on every page, which must all be read for what they have beside them."""
    with databases.folder() as folder:
        pages = _report(folder / "report.pdf")
    spent = [_spent(pages, "heading") for _ in range(3)]
    labelled = min(_spent(pages, "chapter") for _ in range(3))
    what = f"CPU for {REPORT_VALUES} values of {REPORT_PAGES} pages, beside the most there may be"
    found = summary(what, "s", [(MAX_SECONDS, each) for each in spent], at_most=1)
    return found.noted(with_labels_on_every_page=labelled)


def _spent(pages: bytes, name: str) -> float:
    rows = [{"place": f"Quay {at % 6}", "ships": 2 * at + at % 6, "tonnes": 2 * at * 17 + at % 6} for at in range(50)]
    value = {"items": rows, **{f"{name}_{at}": f"Chapter {at} of the report" for at in range(1, 51)}}
    item = {name: {"type": kind} for name, kind in (("place", "string"), ("ships", "integer"), ("tonnes", "number"))}
    items = {"type": "array", "items": {"type": "object", "properties": item}}
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in value} | {"items": items}}
    written = msgspec.json.encode(value), msgspec.json.encode(schema)
    began = time.process_time()
    found = ground_value(io.BytesIO(pages), written[0], False, written[1])
    took = time.process_time() - began
    assert [citation.grounded for citation in found.citations] == [True] * REPORT_VALUES
    return took


def _report(path: Path) -> bytes:
    layers = read_text_layers(io.BytesIO(write_report(path, REPORT_PAGES).read_bytes()), 1, REPORT_PAGES, ())
    assert isinstance(layers, TextLayers)
    return b"".join(write_page(layer.page) for layer in layers.layers if layer.page)
