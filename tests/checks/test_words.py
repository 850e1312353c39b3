"""Source and docs use the field's words: the private metaphors of earlier versions do not come back."""

import re

from tests.checks import tree

METAPHORS = re.compile(r"\b(house|errand|timekeeper|upkeep|keeper|sitting|bells?|rooms?|duty|duties)\b", re.IGNORECASE)
# Spellings that are stored or on the wire, and the former name of an option.
KEPT = (
    *('"timekeeper"', '"duty"', "`duty`", '"duties"', "`duties`", '"rooms"', "`rooms`", '"room"', "`room`"),
    *("label room", "| state, room |", "| room |", "{room}", "job.room", "row.rooms", "penstock:bell"),
    *("--rooms", "rooms: Annotated", "modules or rooms", ", room = tonumber", "now + room"),
)


def without_kept(line: str) -> str:
    for spelling in KEPT:
        line = line.replace(spelling, "")
    return line


def test_no_metaphor_is_left():
    pages = [path for path in tree.files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    sources = [path for path in tree.python_files("src") if "migrations" not in path.parts]
    found = [
        f"{path.relative_to(tree.ROOT)}:{number}: {line.strip()[:100]}"
        for path in [*sources, *pages]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if METAPHORS.search(without_kept(line))
    ]
    assert not found, "\n".join(found)


def test_a_metaphor_is_found():
    assert METAPHORS.search(without_kept("What a house at rest does"))
    assert not METAPHORS.search(without_kept('ACTOR = "timekeeper"'))
