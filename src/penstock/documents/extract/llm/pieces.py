"""The JSON in what a model says: thoughts are taken away, prose and fences passed over.

A piece is what stands between a brace and its partner. One whose partner is missing reaches to the end of the text.
All of it takes a time that grows with the text only.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

MOST_PIECES = 50  # of one answer; a model that says more has not answered
MOST_DEPTH = 64

THOUGHT = re.compile(r"<(/?)(?:think|thinking|thought|thoughts)>", re.IGNORECASE)
BEGIN = re.compile(r"""\{\s*+(?:["'}]|\w++\s*+:)""")  # {see below} is prose
TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What may be a JSON object, or the half of one."""

    text: str
    is_too_deep: bool


def without_thoughts(text: str) -> str:
    """What a model says when it has done thinking. Thoughts may have begun in the question, and may have no end."""
    said: list[str] = []
    at, depth = 0, 0
    for tag in THOUGHT.finditer(text):
        if not depth:
            said.append(text[at : tag.start()])
        if tag[1]:
            said = said if depth else []
            depth = max(depth - 1, 0)
        else:
            depth += 1
        at = tag.end()
    if not depth or not "".join(said).strip():  # what was never closed may be the answer
        said.append(text[at:])
    return "".join(said)


def pieces_of(text: str) -> Iterator[Piece]:
    """The pieces of a text that are not inside of another, in order."""
    at = 0
    for _ in range(MOST_PIECES):
        begin = BEGIN.search(text, at)
        if begin is None:
            return
        end, deepest = _end_of(text, begin.start())
        yield Piece(text=text[begin.start() : end], is_too_deep=deepest > MOST_DEPTH)
        if end is None:
            return
        at = end


def _end_of(text: str, start: int) -> tuple[int | None, int]:
    """Where the piece that begins there ends, and how deep it is."""
    depth = deepest = 0
    for token in TOKEN.finditer(text, start):
        if token[0] in ("{", "["):
            depth += 1
            deepest = max(deepest, depth)
        elif token[0] in ("}", "]"):
            depth -= 1
            if depth == 0:
                return token.end(), deepest
    return None, deepest
