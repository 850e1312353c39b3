"""Markdown for a range of pages with a text layer.

The size of body text, and so what is a heading, is measured over all pages of the range, or on the page itself if its
text is larger. The largest headings of the range have level 1, the next level 2, and so on.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from penstock.documents.layout.markdown import (
    LARGER,
    TITLE,
    MarkdownPiece,
    MarkdownWriter,
    PageContent,
    drop_page_numbers,
    render_markdown,
)
from penstock.documents.layout.paragraphs import Paragraph, group_paragraphs
from penstock.documents.pdf.bold import BoldDetector, is_bold
from penstock.documents.pdf.parsed_page import FontCounts, ParsedPage

DEEPEST = 6
FEW_LETTERS = 400  # with fewer characters, a page does not show its body size
MAX_BOLD = 0.9  # share of a page above which bold has no meaning
WHOLE = 1 << 30  # characters: more than any paragraph has
LEAD_IN = re.compile(r"[^.:：]{2,60}[.:：–—]\s+\S")  # in a list item: a few words that may be bold, and more text


def write_pages(pages: Mapping[int, ParsedPage], source: Path | bytes) -> dict[int, str]:
    """The markdown of the pages, by page number. `source` is the PDF."""
    letters: Counter[tuple[float, str]] = Counter()
    for page in pages.values():
        letters.update(page.letters)
    usual = _usual_size(letters)
    with BoldDetector(source) as bold_detector:
        pieces = {number: _pieces(number, page, usual, bold_detector) for number, page in pages.items()}
    levels = _levels(pieces.values(), is_first=1 in pages)
    return {number: render_markdown(page, levels) for number, page in pieces.items()}


def _pieces(number: int, page: ParsedPage, usual: float, bold_detector: BoldDetector) -> list[MarkdownPiece]:
    size = max(_usual_size(page.letters), usual) if sum(page.letters.values()) >= FEW_LETTERS else usual
    found = drop_page_numbers(group_paragraphs(page.regions), page.height)
    candidates = {} if _is_all_bold(page.letters) else _maybe_bold(found, size)
    return MarkdownWriter(size).write(found, _bold_ends(number, candidates, bold_detector) if candidates else {})


def _usual_size(letters: FontCounts) -> float:
    sizes: Counter[float] = Counter()
    for (size, _), count in letters.items():
        sizes[size] += count
    return max(sizes, key=lambda size: (sizes[size], -size), default=1.0)


def _is_all_bold(letters: FontCounts) -> bool:
    bold = sum(count for (_, font), count in letters.items() if is_bold(font))
    return bold > MAX_BOLD * sum(letters.values())


def _maybe_bold(found: PageContent, usual: float) -> dict[int, Paragraph]:
    """Paragraphs that may start in bold, by index."""
    return {
        at: each
        for at, each in enumerate(found)
        if not isinstance(each, str) and each.lines[0].size < LARGER * usual and _may_begin_bold(each)
    }


def _may_begin_bold(each: Paragraph) -> bool:
    line = each.lines[0]
    return is_bold(line.font) or (each.marker != "" and LEAD_IN.match(line.text, len(each.marker)) is not None)


def _bold_ends(number: int, candidates: Mapping[int, Paragraph], bold_detector: BoldDetector) -> dict[int, int]:
    """The number of bold characters of paragraphs, by index."""
    ends = bold_detector.bold_ends(number, [(each.lines[0], len(each.marker)) for each in candidates.values()])
    return {
        at: WHOLE if _is_whole(each, end) else end for (at, each), end in zip(candidates.items(), ends, strict=True)
    }


def _is_whole(each: Paragraph, end: int) -> bool:
    return end >= len(each.lines[0].text) and all(is_bold(line.font) for line in each.lines[1:])


def _levels(pages: Iterable[Sequence[MarkdownPiece]], *, is_first: bool) -> dict[float, int]:
    """Heading levels by rank. A range that does not start the document is below a title that it does not contain."""
    ranks = sorted({each.rank for page in pages for each in page if each.rank}, reverse=True)
    top = 1 if is_first or TITLE in ranks else 2
    return {rank: min(level, DEEPEST) for level, rank in enumerate(ranks, top)}
