"""CPU cost of the whole pipeline beyond its engines: all processes, from the stored file to the stored result.

Ours is a runtime on SQLite and local disk with one slot: submit, the OCR stage with sandbox and page checkpoints, and
post-processing by `skip`. The reference is a loop in one process that calls the engines and drops their output:
liteparse on the text layer, pypdfium2 and RapidOCR on the scan, with our settings. The idle cost of a runtime is
included in ours, and noted. So is the ratio to an engine that is called differently: the parser without a copy into
Python values, and RapidOCR with its defaults.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import databases
from bench.comparison import Finding, summary
from bench.etl_documents import DPI, POINTS, write_report, write_scan
from bench.etl_pipeline import cpu_seconds, in_fresh_process, open_pipeline

TEXT_PAGES, SCAN_PAGES = 100, 10
ROUNDS = 5  # the engines' own time varies by a tenth and more between rounds
ACCURATE_ROUNDS = 3
COPIES = 10  # reports in a row: one takes a third of a second
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
    """CPU cost of a document, and the idle cost of a runtime in the same time."""

    cpu_seconds: float
    at_rest: float


def run() -> list[Finding]:
    """The scan with the accurate models runs in fewer rounds, since it takes minutes."""
    with databases.folder() as folder:
        report = write_report(folder / "report.pdf", TEXT_PAGES)
        scan = write_scan(folder / "scan.pdf", SCAN_PAGES)
        first = write_scan(folder / "first.pdf", 1)
        return [
            _report(report),
            _scan(scan, first, "fast", ROUNDS),
            _scan(scan, first, "accurate", ACCURATE_ROUNDS),
        ]


def _report(report: Path) -> Finding:
    rounds = [
        (
            in_fresh_process(loop, parse, str(report)),
            in_fresh_process(loop, parse_inside, str(report)),
            in_fresh_process(chain, report, report, COPIES, "fast"),
        )
        for _ in range(ROUNDS)
    ]
    what = f"a report of {TEXT_PAGES} pages through the chain beside liteparse"
    return _found(what, rounds, "parse without Python values")


def _scan(scan: Path, first: Path, profile: str, rounds: int) -> Finding:
    papers = str(scan), str(first)
    made = [
        (
            in_fresh_process(look, tuned, *papers, profile),
            in_fresh_process(look, engine, *papers, profile),
            in_fresh_process(chain, scan, first, 1, profile),
        )
        for _ in range(rounds)
    ]
    what = f"a scan of {SCAN_PAGES} pages, {profile}, through the chain beside RapidOCR"
    return _found(what, made, "RapidOCR as it comes")


def _found(what: str, rounds: Sequence[tuple[float, float, Cost]], other: str) -> Finding:
    """Ours against the reference, with the ratio to the differently called engine noted."""
    found = summary(what, "CPU s", [(seconds, ours.cpu_seconds) for seconds, _, ours in rounds], at_most=TARGET)
    beside = summary("", "", [(seconds, ours.cpu_seconds) for _, seconds, ours in rounds])
    at_rest = _idle([ours for _, _, ours in rounds])
    return found.noted(at_rest=at_rest, **{other: beside.reference}, ratio_to_that=beside.ratio)


def _idle(costs: list[Cost]) -> float:
    return statistics.median(cost.at_rest for cost in costs)


def chain(document: Path, first: Path, copies: int, profile: str) -> Cost:
    """CPU cost of a document in a warm runtime."""
    return asyncio.run(_chain(document, first, copies, profile))


async def _chain(document: Path, first: Path, copies: int, profile: str) -> Cost:
    async with open_pipeline(profile=profile) as pipeline:
        await pipeline.read([first])
        before, began = cpu_seconds(), time.perf_counter()
        await pipeline.read([document] * copies)
        spent, seconds = cpu_seconds() - before, time.perf_counter() - began
        before = cpu_seconds()
        await asyncio.sleep(REST_SECONDS)
        rest = (cpu_seconds() - before) / REST_SECONDS
    return Cost(cpu_seconds=spent / copies, at_rest=rest * seconds / copies)


def loop(engine: Callable[[bytes], Any], document: str) -> float:
    """CPU seconds per document of a warm engine."""
    content = Path(document).read_bytes()
    engine(content)
    before = time.process_time()
    for _ in range(COPIES):
        engine(content)
    return (time.process_time() - before) / COPIES


def parse(content: bytes) -> object:
    """Parse the text layer through liteparse's public API."""
    from liteparse import LiteParse

    return LiteParse(**OPTIONS).parse(content)


def parse_inside(content: bytes) -> object:
    """Parse the text layer without the copy into Python values, as our reader does."""
    from liteparse._liteparse import LiteParse

    return LiteParse(**OPTIONS).parse_bytes(content)


def look(make: Callable[[str], Any], scan: str, first: str, profile: str) -> float:
    """CPU seconds of rendering and reading a scan with a warm engine."""
    reads = make(profile)
    _see(first, reads)
    before = time.process_time()
    _see(scan, reads)
    return time.process_time() - before


def engine(profile: str) -> Callable[[Any], Any]:
    """RapidOCR with our settings, without our changes."""
    from rapidocr import RapidOCR

    from penstock.documents.ocr import engine

    engine.configure_process()
    return RapidOCR(params=engine.engine_params(profile))


def tuned(profile: str) -> Callable[[Any], Any]:
    """RapidOCR as our reader uses it."""
    from penstock.documents.ocr import engine

    return engine.load_engine(profile)


def _see(scan: str, reads: Callable[[Any], Any]) -> None:
    import pypdfium2

    with pypdfium2.PdfDocument(scan) as document:
        for page in document:
            reads(page.render(scale=DPI / POINTS).to_numpy())
