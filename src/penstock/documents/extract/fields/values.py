"""Parse the text next to a label into a value of its leaf.

Each reading of a text is validated against the schema of the leaf, and the first valid one is used. So no value makes
the result invalid.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.documents.extract.fields import dates, numbers
from penstock.documents.extract.fields.label_keys import label_key
from penstock.documents.extract.fields.schema_tree import LeafNode, leaf_types
from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.validation import SchemaValidator

MAX_TEXT = 1000  # characters of a single value
MAX_TOKENS = 50

_EDGES = " \t\r\n\u00a0\u3000`|,，;；、"
_CLOSING = ")）]】"  # brackets that close around the label
_OPENING = "(（"  # brackets that open around the next label
_BOLD = re.compile(r"^(?:\*\*|__)\s+(?=[^*_]*$)|^(?P<mark>\*\*|__|\*)(?P<text>[^*_]+)(?P=mark)$")  # bold in markdown
_EMPTY = re.compile(r"[\s\-–—_.…·/\\*]*|n\s*/\s*a|n\.a\.|nil|none|null", re.IGNORECASE)
_BOX = re.compile(r"(?P<checked>[☑☒✓✔√⊠]|\[[xX✓√]\])|(?P<open>[☐□▢]|\[\s?\])")
_BOX_OR_BULLET = re.compile(r"(?P<checked>[☑☒✓✔√⊠■●◉]|\[[xX✓√]\])|(?P<open>[☐□▢○◯]|\[\s?\])")
_TOKEN = re.compile(r"[^\s,，;；、()（）<>\"'“”]+")
_YES = frozenset(map(label_key, ("yes", "y", "true", "on", "checked", "是", "有", "对", "真")))
_NO = frozenset(map(label_key, ("no", "n", "false", "off", "unchecked", "否", "无", "错", "假", "不是")))
_HALF_WIDTH = {wide: wide - 0xFEE0 for wide in range(0xFF10, 0xFF5B) if chr(wide).isalnum()}  # digits and letters
_BY_FORMAT = {"date": dates.dates_ignoring_time, "time": dates.times, "date-time": dates.date_times}


@dataclass(frozen=True, kw_only=True)
class ParsedValue:
    """A value and the text of the document that it was parsed from."""

    value: Any
    text: str


def parse_value(leaf: LeafNode, text: str) -> ParsedValue | None:
    """Parse a text as the value of a leaf; None when no reading is valid."""
    plain = _BOLD.sub(r"\g<text>", text.strip(_EDGES).lstrip(_CLOSING).rstrip(_OPENING)).strip(_EDGES)
    if not plain or len(plain) > MAX_TEXT or _EMPTY.fullmatch(plain):
        return None
    for hint in leaf.hints:
        for value, source in _readings(hint, plain, leaf.validator):
            if leaf.validator.is_valid(value):
                return ParsedValue(value=value, text=source)
    return None


def is_option(leaf: LeafNode, text: str) -> bool:
    """Whether a text is one of the enumerated values of a leaf."""
    return any("enum" in hint or "const" in hint for hint in leaf.hints) and parse_value(leaf, text) is not None


def checkboxes(text: str) -> Iterator[tuple[bool, str]]:
    """The checkboxes of a line: whether each is checked, and the text after it."""
    boxes = list(_BOX_OR_BULLET.finditer(text))
    if len({bool(box["checked"]) for box in boxes}) < 2:  # a dot is a checkbox only next to an empty one
        boxes = list(_BOX.finditer(text))
    ends = [box.start() for box in boxes[1:]] + [len(text)]
    for box, end in zip(boxes, ends, strict=False):
        yield bool(box["checked"]), text[box.end() : end].strip(_EDGES)


def _readings(hint: JsonObject, text: str, validator: SchemaValidator) -> Iterator[tuple[Any, str]]:
    checked = _checked_option(text)
    if isinstance(checked, bool):
        yield checked, text
        return
    options = [hint["const"]] if "const" in hint else hint.get("enum")
    source = text if checked is None else checked
    if source and isinstance(options, list):
        yield from ((option, source) for option in options if _is_option(option, source))
    elif source:
        yield from _typed_values(hint, source, validator)


def _checked_option(text: str) -> str | bool | None:
    """The text of the one checked box; or the state of the only box, if it has no text; None without boxes."""
    boxes = list(checkboxes(text))
    if not boxes:
        return None
    if len(boxes) == 1 and not boxes[0][1]:
        return boxes[0][0]
    checked = [text for is_checked, text in boxes if is_checked]
    return checked[0] if len(checked) == 1 else ""


def _is_option(option: Any, text: str) -> bool:
    if isinstance(option, str):
        return option == text or (label_key(option) == label_key(text) != "")
    if isinstance(option, bool):
        return option in _booleans(text)
    return isinstance(option, int | float) and next(numbers.readings(text), None) == option


def _typed_values(hint: JsonObject, text: str, validator: SchemaValidator) -> Iterator[tuple[Any, str]]:
    for kind in leaf_types(hint):
        if kind in ("number", "integer"):
            read = numbers.as_fractions if _expects_fraction(hint) else numbers.as_printed
            yield from ((number, text) for number in read(text))
        elif kind == "boolean":
            yield from ((boolean, text) for boolean in _booleans(text))
        elif kind == "string":
            yield from _strings(hint, text, validator)


def _expects_fraction(hint: JsonObject) -> bool:
    """Whether a percentage is meant as a fraction: the schema allows at most 1."""
    return any(hint.get(word, 2) <= 1 for word in ("maximum", "exclusiveMaximum"))


def _booleans(text: str) -> Iterator[bool]:
    key = label_key(text)
    if key in _YES or key in _NO:
        yield key in _YES


def _strings(hint: JsonObject, text: str, validator: SchemaValidator) -> Iterator[tuple[str, str]]:
    named = hint.get("format")
    if named in _BY_FORMAT:
        yield from ((value, text) for value in _BY_FORMAT[named](text))
        return
    yield text.translate(_HALF_WIDTH), text
    if named is None and "pattern" not in hint:
        return
    tokens = dict.fromkeys(token.rstrip(".。:：") for token in _TOKEN.findall(text)[:MAX_TOKENS])
    fitting = [token for token in tokens if token != text and validator.is_valid(token)]
    if len(fitting) == 1:  # with two, neither is preferred
        yield fitting[0], fitting[0]
