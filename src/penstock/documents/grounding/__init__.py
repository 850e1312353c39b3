"""Grounding: cite the page and bounding box of each value of a result, or report that the value is not in the document.

    result_leaves.py   the scalar values of a result          search_terms.py       every form to search a value in
    tokens.py          text as tokens                         spellings.py          numbers, dates, currencies in words
    page_text.py       a page as segments in rows             occurrences.py        where a value occurs on a page
    search.py          all terms against one page
        amounts.py     numbers, compared by value             dates.py              dates, compared by date
        fuzzy.py       text that is not contiguous
    nearby_labels.py   the labels next to an occurrence       field_lookup.py       the value next to a label
    label_translations.py   labels in other languages         items.py              the page row of an array item
    citations.py       the citation of each value
    ground.py          the entry point, which runs in the sandbox

`grounded: true` means that the value occurs at the cited place. `grounded: false` without a page means that it does not
occur at all; with a page, that its label or its row shows another value, which is cited instead. Null and empty text
claim nothing and get no citation. A boolean is grounded only by a word or a checkbox at its label: an answer inferred
from prose, or from the absence of text, is not grounded even when it is right. Similar-looking letters and digits never
match.

Each page is read once against all values, so the cost grows with pages plus values, not with their product.
"""

from penstock.documents.grounding.ground import Grounded, ground_value

__all__ = ["VERSION", "Grounded", "ground_value"]

VERSION = 1  # part of the result's identity: increase it when the verdict on the same result changes
