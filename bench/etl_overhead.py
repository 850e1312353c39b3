"""What the whole chain costs beyond its engines: CPU of all processes, from the stored file to the stored result.

Ours is a house on SQLite and a folder with one slot: submit, OCR stage with sandbox, page by page with checkpoints, and
post-processing by `skip`. The reference is a loop in one process that calls the engines and forgets what they say:
liteparse over the text layer, pypdfium2 and RapidOCR over the scan, with the same settings as ours. What ours saves by
asking an engine in a leaner way counts for ours; the ratio to an engine that is asked like that is noted. A house does
things every second whether it has documents or not; what that takes is in ours, and noted.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import databases
from bench.etl_documents import DPI, POINTS, write_report, write_scan
from bench.etl_works import alone, cpu_seconds, open_works
from bench.rounds import Finding, summary

TEXT_PAGES, SCAN_PAGES = 100, 10
ROUNDS = 5  # the engines' own time differs by a twentieth from one to the next
COPIES = 10  # of the report in a row: one takes a third of a second
TARGET = 1.05
REST_SECONDS = 5
OPTIONS: dict[str, Any] = {  # of liteparse, as ours has them
    "ocr_enabled": False,
    "output_format": "markdown",
    "quiet": True,
    "image_mode": "off",
    "extract_links": False,
    "keep_headers_footers": True,
    "extract_blocks": True,
}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a document cost a house, and the part of it that a house at rest would have cost in the same time."""

    cpu_seconds: float
    at_rest: float


def run() -> list[Finding]:
    """The scan by the accurate models is read once, for it takes minutes."""
    with databases.folder() as folder:
        report = write_report(folder / "report.pdf", TEXT_PAGES)
        scan = write_scan(folder / "scan.pdf", SCAN_PAGES)
        first = write_scan(folder / "first.pdf", 1)
        return [
            _report(report),
            _scan(scan, first, "fast", ROUNDS),
            _scan(scan, first, "accurate", 1),
        ]


def _report(report: Path) -> Finding:
    rounds = []
    for _ in range(ROUNDS):
        public, inner = alone(loop, parse, str(report)), alone(loop, parse_inside, str(report))
        rounds.append((public, inner, alone(chain, report, report, COPIES, "fast")))
    what = f"a report of {TEXT_PAGES} pages through the chain beside liteparse"
    found = summary(what, "CPU s", [(public, ours.cpu_seconds) for public, _, ours in rounds], at_most=TARGET)
    inside = summary("", "", [(inner, ours.cpu_seconds) for _, inner, ours in rounds])
    return found.noted(
        at_rest=_at_rest([ours for _, _, ours in rounds]),
        parse_without_Python_values=inside.reference,
        ratio_to_that=inside.ratio,
    )


def _scan(scan: Path, first: Path, profile: str, rounds: int) -> Finding:
    papers = str(scan), str(first)
    made = [
        (
            alone(look, engine, *papers, profile),
            alone(look, tuned, *papers, profile),
            alone(chain, scan, first, 1, profile),
        )
        for _ in range(rounds)
    ]
    what = f"a scan of {SCAN_PAGES} pages, {profile}, through the chain beside RapidOCR"
    found = summary(what, "CPU s", [(bare, ours.cpu_seconds) for bare, _, ours in made], at_most=TARGET)
    inside = summary("", "", [(inner, ours.cpu_seconds) for _, inner, ours in made])
    return found.noted(
        at_rest=_at_rest([ours for _, _, ours in made]),
        RapidOCR_as_ours_has_it=inside.reference,
        ratio_to_that=inside.ratio,
    )


def _at_rest(costs: list[Cost]) -> float:
    return statistics.median(cost.at_rest for cost in costs)


def chain(document: Path, first: Path, copies: int, profile: str) -> Cost:
    """What a document costs a house that has read one already."""
    return asyncio.run(_chain(document, first, copies, profile))


async def _chain(document: Path, first: Path, copies: int, profile: str) -> Cost:
    async with open_works(profile=profile) as works:
        await works.read([first])
        before, began = cpu_seconds(), time.perf_counter()
        await works.read([document] * copies)
        spent, seconds = cpu_seconds() - before, time.perf_counter() - began
        before = cpu_seconds()
        await asyncio.sleep(REST_SECONDS)
        rest = (cpu_seconds() - before) / REST_SECONDS
    return Cost(cpu_seconds=spent / copies, at_rest=rest * seconds / copies)


def loop(engine: Callable[[bytes], Any], document: str) -> float:
    """CPU seconds per document of an engine that has read one already."""
    content = Path(document).read_bytes()
    engine(content)
    before = time.process_time()
    for _ in range(COPIES):
        engine(content)
    return (time.process_time() - before) / COPIES


def parse(content: bytes) -> object:
    """The text layer as liteparse gives it to those who call it."""
    from liteparse import LiteParse

    return LiteParse(**OPTIONS).parse(content)


def parse_inside(content: bytes) -> object:
    """The same without the copy into Python's own values, which is what ours calls."""
    from liteparse._liteparse import LiteParse

    return LiteParse(**OPTIONS).parse_bytes(content)


def look(make: Callable[[str], Any], scan: str, first: str, profile: str) -> float:
    """CPU seconds of drawing and reading a scan with an engine that has read a page already."""
    reads = make(profile)
    _see(first, reads)
    before = time.process_time()
    _see(scan, reads)
    return time.process_time() - before


def engine(profile: str) -> Callable[[Any], Any]:
    """RapidOCR as it comes, set as ours is."""
    from rapidocr import RapidOCR

    from penstock.documents import rapid

    rapid.prepare()
    return RapidOCR(params=rapid.params(profile))


def tuned(profile: str) -> Callable[[Any], Any]:
    """RapidOCR as the zygote has it."""
    from penstock.documents import rapid

    return rapid.load(profile)


def _see(scan: str, reads: Callable[[Any], Any]) -> None:
    import pypdfium2

    with pypdfium2.PdfDocument(scan) as document:
        for page in document:
            reads(page.render(scale=DPI / POINTS).to_numpy())
