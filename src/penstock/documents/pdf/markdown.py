"""A stretch of pages of a text layer as markdown.

How large the usual text is, and with it what is a heading, is told by all pages of the stretch, and by a page itself
when its text is larger. The largest headings of the stretch are of the first level, the next of the second, and so on.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from penstock.documents.layout.markdown import LARGER, TITLE, Found, Writing, Written, markdown_of, without_page_numbers
from penstock.documents.layout.paragraphs import Paragraph, paragraphs_of
from penstock.documents.pdf.bold import SecondLook, is_bold
from penstock.documents.pdf.parsed_page import Letters, Sheet

DEEPEST = 6
FEW_LETTERS = 400  # a page with fewer does not tell how large its text is
MOST_BOLD = 0.9  # of a page; where there is more, it says nothing
WHOLE = 1 << 30  # letters
LEAD_IN = re.compile(r"[^.:：]{2,60}[.:：–—]\s+\S")  # of an item: a few words that may be bold, and more


def write_pages(sheets: Mapping[int, Sheet], content: bytes) -> dict[int, str]:
    """The markdown of these pages of a PDF with this content."""
    letters: Counter[tuple[float, str]] = Counter()
    for sheet in sheets.values():
        letters.update(sheet.letters)
    usual = _usual_size(letters)
    with SecondLook(content) as second:
        pages = {number: _written(number, sheet, usual, second) for number, sheet in sheets.items()}
    levels = _levels(pages.values(), is_first=1 in sheets)
    return {number: markdown_of(written, levels) for number, written in pages.items()}


def _written(number: int, sheet: Sheet, usual: float, second: SecondLook) -> list[Written]:
    size = max(_usual_size(sheet.letters), usual) if sum(sheet.letters.values()) >= FEW_LETTERS else usual
    found = without_page_numbers(paragraphs_of(sheet.parts), sheet.height)
    asked = {} if _is_all_bold(sheet.letters) else _maybe_bold(found, size)
    return Writing(size).write(found, _bold_ends(number, asked, second) if asked else {})


def _usual_size(letters: Letters) -> float:
    sizes: Counter[float] = Counter()
    for (size, _), count in letters.items():
        sizes[size] += count
    return max(sizes, key=lambda size: (sizes[size], -size), default=1.0)


def _is_all_bold(letters: Letters) -> bool:
    bold = sum(count for (_, font), count in letters.items() if is_bold(font))
    return bold > MOST_BOLD * sum(letters.values())


def _maybe_bold(found: Found, usual: float) -> dict[int, Paragraph]:
    """Paragraphs that may begin with bold words, by their places."""
    return {
        at: each
        for at, each in enumerate(found)
        if not isinstance(each, str) and each.lines[0].size < LARGER * usual and _may_begin_bold(each)
    }


def _may_begin_bold(each: Paragraph) -> bool:
    line = each.lines[0]
    return is_bold(line.font) or (each.mark != "" and LEAD_IN.match(line.text, len(each.mark)) is not None)


def _bold_ends(number: int, asked: Mapping[int, Paragraph], second: SecondLook) -> dict[int, int]:
    """Up to which letter paragraphs are bold."""
    ends = second.bold_ends(number, [(each.lines[0], len(each.mark)) for each in asked.values()])
    return {at: WHOLE if _is_whole(each, end) else end for (at, each), end in zip(asked.items(), ends, strict=True)}


def _is_whole(each: Paragraph, end: int) -> bool:
    return end >= len(each.lines[0].text) and all(is_bold(line.font) for line in each.lines[1:])


def _levels(pages: Iterable[Sequence[Written]], *, is_first: bool) -> dict[float, int]:
    """Of headings by their ranks. Pages that do not begin the document are below a title that they do not show."""
    ranks = sorted({each.rank for page in pages for each in page if each.rank}, reverse=True)
    top = 1 if is_first or TITLE in ranks else 2
    return {rank: min(level, DEEPEST) for level, rank in enumerate(ranks, top)}
