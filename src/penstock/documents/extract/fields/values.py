"""Text as a value: what a leaf's part of the schema asks for, read from the text by a label.

Each reading of a text is shown to the leaf's own schema, and the first that satisfies it is taken. So a value that
would make the result wrong is never taken, whatever it looks like.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.documents.extract.fields import dates, numbers
from penstock.documents.extract.fields.tree import Judge, Leaf, kinds_of
from penstock.documents.extract.fields.words import key_of
from penstock.kernel.plain import Plain

MOST_TEXT = 1000  # characters of a single value
MOST_TOKENS = 50

_EDGES = " \t\r\n\u00a0\u3000`|,，;；、"
_CLOSING = ")）]】"  # of a bracket that the label was in
_OPENING = "(（"  # of one that the next label is in
_MARKED = re.compile(r"^(?:\*\*|__)\s+(?=[^*_]*$)|^(?P<mark>\*\*|__|\*)(?P<text>[^*_]+)(?P=mark)$")  # bold in markdown
_EMPTY = re.compile(r"[\s\-–—_.…·/\\*]*|n\s*/\s*a|n\.a\.|nil|none|null", re.IGNORECASE)
_BOX = re.compile(r"(?P<ticked>[☑☒✓✔√⊠]|\[[xX✓√]\])|(?P<open>[☐□▢]|\[\s?\])")
_BOX_OR_BULLET = re.compile(r"(?P<ticked>[☑☒✓✔√⊠■●◉]|\[[xX✓√]\])|(?P<open>[☐□▢○◯]|\[\s?\])")
_TOKEN = re.compile(r"[^\s,，;；、()（）<>\"'“”]+")
_YES = frozenset(map(key_of, ("yes", "y", "true", "on", "checked", "是", "有", "对", "真")))
_NO = frozenset(map(key_of, ("no", "n", "false", "off", "unchecked", "否", "无", "错", "假", "不是")))
_HALF_WIDTH = {wide: wide - 0xFEE0 for wide in range(0xFF10, 0xFF5B) if chr(wide).isalnum()}  # digits and letters
_BY_FORMAT = {"date": dates.days, "time": dates.times, "date-time": dates.moments}


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A value, and the text that it is: a part of what stands in the document."""

    value: Any
    text: str


def take(leaf: Leaf, text: str) -> Taken | None:
    """The value of a leaf by this text, None when the text is none for it."""
    plain = _MARKED.sub(r"\g<text>", text.strip(_EDGES).lstrip(_CLOSING).rstrip(_OPENING)).strip(_EDGES)
    if not plain or len(plain) > MOST_TEXT or _EMPTY.fullmatch(plain):
        return None
    for hint in leaf.hints:
        for value, said in _readings(hint, plain, leaf.judge):
            if leaf.judge.is_valid(value):
                return Taken(value=value, text=said)
    return None


def is_option(leaf: Leaf, text: str) -> bool:
    """Whether a text is one of the values that a leaf has to choose from."""
    return any("enum" in hint or "const" in hint for hint in leaf.hints) and take(leaf, text) is not None


def ticks(text: str) -> Iterator[tuple[bool, str]]:
    """The boxes to tick in a line: whether each is, and what stands after it."""
    boxes = list(_BOX_OR_BULLET.finditer(text))
    if len({bool(box["ticked"]) for box in boxes}) < 2:  # a dot alone is a bullet; beside an empty one it is a choice
        boxes = list(_BOX.finditer(text))
    ends = [box.start() for box in boxes[1:]] + [len(text)]
    for box, end in zip(boxes, ends, strict=False):
        yield bool(box["ticked"]), text[box.end() : end].strip(_EDGES)


def _readings(hint: Plain, text: str, judge: Judge) -> Iterator[tuple[Any, str]]:
    chosen = _chosen(text)
    if isinstance(chosen, bool):
        yield chosen, text
        return
    options = [hint["const"]] if "const" in hint else hint.get("enum")
    for said in filter(None, (chosen,) if chosen is not None else (text,)):
        if isinstance(options, list):
            yield from ((option, said) for option in options if _is_option(option, said))
        else:
            yield from _typed(hint, said, judge)


def _chosen(text: str) -> str | bool | None:
    """What is ticked: the text of the one box that is, or whether the only box is. None when there are no boxes."""
    boxes = list(ticks(text))
    if not boxes:
        return None
    if len(boxes) == 1 and not boxes[0][1]:
        return boxes[0][0]
    ticked = [said for is_ticked, said in boxes if is_ticked]
    return ticked[0] if len(ticked) == 1 else ""


def _is_option(option: Any, text: str) -> bool:
    if isinstance(option, str):
        return option == text or (key_of(option) == key_of(text) != "")
    if isinstance(option, bool):
        return option in _truths(text)
    return isinstance(option, int | float) and next(numbers.readings(text), None) == option


def _typed(hint: Plain, text: str, judge: Judge) -> Iterator[tuple[Any, str]]:
    for kind in kinds_of(hint):
        if kind in ("number", "integer"):
            read = numbers.shares if _is_part_of_one(hint) else numbers.printed
            yield from ((number, text) for number in read(text))
        elif kind == "boolean":
            yield from ((truth, text) for truth in _truths(text))
        elif kind == "string":
            yield from _strings(hint, text, judge)


def _is_part_of_one(hint: Plain) -> bool:
    """Whether a percentage is meant as the part of one: the schema takes no more than that."""
    return any(hint.get(word, 2) <= 1 for word in ("maximum", "exclusiveMaximum"))


def _truths(text: str) -> Iterator[bool]:
    key = key_of(text)
    if key in _YES or key in _NO:
        yield key in _YES


def _strings(hint: Plain, text: str, judge: Judge) -> Iterator[tuple[str, str]]:
    named = hint.get("format")
    if named in _BY_FORMAT:
        yield from ((value, text) for value in _BY_FORMAT[named](text))
        return
    yield text.translate(_HALF_WIDTH), text
    if named is None and "pattern" not in hint:
        return
    tokens = dict.fromkeys(token.rstrip(".。:：") for token in _TOKEN.findall(text)[:MOST_TOKENS])
    fitting = [token for token in tokens if token != text and judge.is_valid(token)]
    if len(fitting) == 1:  # of two, none is meant more than the other
        yield fitting[0], fitting[0]
