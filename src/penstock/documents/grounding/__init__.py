"""Grounding: from a value of a result back to its page and box, or the verdict that it stands nowhere.

    leaves.py    what a result states, value by value       sought.py   all ways in which a document may have it
    tokens.py    text as words                              spelled.py  numbers, days and currencies in other words
    sheet.py     a page as bits in rows                     spots.py    where a value stands on it
    search.py    one page against all that is looked for
        amounts.py   numbers, by their value                days.py     days, by their day
        loosely.py   text that does not stand in one piece
    labelled.py  which label a value stands by              saidby.py   what stands by a label (extract/fields)
    tongues.py   what labels are called elsewhere           items.py    which row an item came from
    judge.py     the verdict                                pruned.py   a result without what stands nowhere
    ground.py    the whole, as the one function that runs in the sandbox

`grounded: true` says that the value stands at that place. `grounded: false` without a page says that it stands nowhere;
with a page, that its own label or its own row has something else there, which is then shown. Null and empty text claim
nothing and have no place. Yes and no are grounded by a word or a box at their label only: what was concluded from prose
or from silence stands nowhere, however right it may be. Letters and digits are never forgiven for looking alike.

A page is read once against all values, so time grows with the pages and with the values, not with their product.
"""

from penstock.documents.grounding.ground import Grounded, ground_value

__all__ = ["VERSION", "Grounded", "ground_value"]

VERSION = 1  # another verdict on the same result makes another result: count it up, or old ones are taken for new
