"""Find JSON objects in a model's response: reasoning is stripped, prose and code fences are skipped.

A candidate reaches from an opening brace to its closing one, or to the end of the text when that is missing. The cost
is linear in the length of the text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_CANDIDATES = 50  # per response; with more, the model has not answered
MAX_DEPTH = 64

REASONING_TAG = re.compile(r"<(/?)(?:think|thinking|thought|thoughts)>", re.IGNORECASE)
OBJECT_START = re.compile(r"""\{\s*+(?:["'}]|\w++\s*+:)""")  # {see below} is prose
TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class JsonCandidate:
    """A text that may be a JSON object, possibly incomplete."""

    text: str
    is_too_deep: bool


def strip_reasoning(text: str) -> str:
    """A response without its reasoning. The opening tag may be in the prompt, and the closing tag may be missing."""
    kept: list[str] = []
    at, depth = 0, 0
    for tag in REASONING_TAG.finditer(text):
        if not depth:
            kept.append(text[at : tag.start()])
        if tag[1]:
            kept = kept if depth else []
            depth = max(depth - 1, 0)
        else:
            depth += 1
        at = tag.end()
    if not depth or not "".join(kept).strip():  # unclosed reasoning may contain the answer
        kept.append(text[at:])
    return "".join(kept)


def json_candidates(text: str) -> Iterator[JsonCandidate]:
    """The outermost candidates of a text, in order."""
    at = 0
    for _ in range(MAX_CANDIDATES):
        begin = OBJECT_START.search(text, at)
        if begin is None:
            return
        end, deepest = _find_end(text, begin.start())
        yield JsonCandidate(text=text[begin.start() : end], is_too_deep=deepest > MAX_DEPTH)
        if end is None:
            return
        at = end


def _find_end(text: str, start: int) -> tuple[int | None, int]:
    """The end of the candidate that starts here, and its nesting depth."""
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
