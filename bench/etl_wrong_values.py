"""Planted wrong values, of the kinds that models make up, inserted into right results."""

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from bench.etl_ground_truth import Facts
from bench.etl_ground_truth_values import CURRENCIES
from penstock.kernel.json_object import JsonObject

INVENTED = {
    "ascii": "Oliver Trentham|Meridian Consulting Group|Sofia Lindqvist|Apex Industrial Supplies|Claire Dubois",
    "other": "孙丽华|宏达实业有限公司|Günther Öztürk|Möwe Schifffahrt GmbH|南京博远咨询有限公司",
}
SHARE = 0.12  # of a result's values

Way: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Plant:
    """A wrong value: its pointer and kind."""

    pointer: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A result with wrong values in it."""

    value: JsonObject
    plants: tuple[Plant, ...]


@dataclass(frozen=True, kw_only=True)
class _Leaf:
    way: Way
    value: Any
    options: tuple[Any, ...]  # that the schema lists
    result: JsonObject


def plant(facts: Facts, dice: random.Random) -> Planted:
    """A copy of the true result with some wrong values."""
    value = copy.deepcopy(facts.value)
    leaves = [_Leaf(way=way, value=leaf, options=options, result=facts.value) for way, leaf, options in
              _leaves(facts.value, facts.schema, ())]  # fmt: skip
    plants = []
    for leaf in dice.sample(leaves, max(1, round(SHARE * len(leaves)))):
        wrong = {kind: each for kind, make in KINDS.items() if (each := make(leaf, dice)) not in (None, leaf.value)}
        if wrong:
            kind = dice.choice(sorted(wrong))
            _put(value, leaf.way, wrong[kind])
            plants.append(Plant(pointer="".join(f"/{step}" for step in leaf.way), kind=kind))
    return Planted(value=value, plants=tuple(plants))


def _leaves(value: Any, schema: JsonObject, way: Way) -> Iterator[tuple[Way, Any, tuple[Any, ...]]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, schema["properties"][name], (*way, name))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _leaves(inner, schema["items"], (*way, at))
    elif value is not None:
        yield way, value, tuple(option for option in schema.get("enum", ()) if option is not None)


def _put(value: Any, way: Way, wrong: Any) -> None:
    for step in way[:-1]:
        value = value[step]
    value[way[-1]] = wrong


def _invented_name(leaf: _Leaf, dice: random.Random) -> Any:
    if not _is_words(leaf):
        return None
    return dice.choice(INVENTED["ascii" if str(leaf.value).isascii() else "other"].split("|"))


def _invented_number(leaf: _Leaf, dice: random.Random) -> Any:
    if not _is_number(leaf):
        return None
    wrong = round(float(leaf.value) * dice.uniform(0.3, 2.7), 2 if isinstance(leaf.value, float) else 0)
    return wrong if isinstance(leaf.value, float) else int(wrong) + 1


def _digits_swapped(leaf: _Leaf, dice: random.Random) -> Any:
    if _is_day(leaf) or isinstance(leaf.value, bool) or leaf.options:
        return None
    text = str(leaf.value)
    pairs = [
        at
        for at in range(len(text) - 1)
        if text[at : at + 2].isdecimal() and text[at] != text[at + 1] and text[at : at + 2].isascii()
    ]
    if not pairs or len(text) < 3:
        return None
    at = dice.choice(pairs)
    wrong = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return wrong if isinstance(leaf.value, str) else type(leaf.value)(wrong)


def _point_moved(leaf: _Leaf, dice: random.Random) -> Any:
    if not isinstance(leaf.value, float) or leaf.value == 0:
        return None
    return round(leaf.value * dice.choice([0.1, 10, 100]), 4)


def _letter_changed(leaf: _Leaf, dice: random.Random) -> Any:
    if not _is_words(leaf) or len(leaf.value) > 60:
        return None
    places = [at for at, letter in enumerate(leaf.value) if letter.isalpha()]
    at = dice.choice(places)
    letter = (
        "某"
        if ord(leaf.value[at]) > 0x2E80
        else dice.choice([each for each in "aeionrst" if each != leaf.value[at].lower()])
    )
    return leaf.value[:at] + letter + leaf.value[at + 1 :]


def _neighbour(leaf: _Leaf, dice: random.Random) -> Any:
    """The value of another item of the same list."""
    if len(leaf.way) != 3 or not isinstance(leaf.way[1], int):
        return None
    items = leaf.result[str(leaf.way[0])]
    at = leaf.way[1]
    near = [items[other][leaf.way[2]] for other in (at - 1, at + 1) if 0 <= other < len(items)]
    others = [value for value in near if value != leaf.value]
    return dice.choice(others) if others else None


def _other_field(leaf: _Leaf, dice: random.Random) -> Any:
    """The value of another field of the same type."""
    if len(leaf.way) != 1 or leaf.options or isinstance(leaf.value, bool):
        return None
    others = [
        value
        for name, value in leaf.result.items()
        if name != leaf.way[0] and _type(value) == _type(leaf.value) and value != leaf.value and value not in CURRENCIES
    ]
    return dice.choice(others) if others else None


def _wrong_option(leaf: _Leaf, dice: random.Random) -> Any:
    others = [option for option in leaf.options if option != leaf.value]
    return dice.choice(others) if others and leaf.value not in CURRENCIES else None


def _wrong_currency(leaf: _Leaf, dice: random.Random) -> Any:
    return dice.choice([code for code in CURRENCIES if code != leaf.value]) if leaf.value in CURRENCIES else None


def _wrong_day(leaf: _Leaf, dice: random.Random) -> Any:
    if not _is_day(leaf):
        return None
    year, month, rest = int(leaf.value[:4]), int(leaf.value[5:7]), leaf.value[7:]
    if dice.random() < 0.5:
        year += dice.choice([-1, 1])
    else:
        month = month % 12 + 1
    return f"{year}-{month:02}{'-28' + rest[3:] if rest[1:3] > '28' else rest}"


def _turned_round(leaf: _Leaf, dice: random.Random) -> Any:  # noqa: ARG001  (one form for all kinds)
    return not leaf.value if isinstance(leaf.value, bool) else None


KINDS: dict[str, Callable[[_Leaf, random.Random], Any]] = {
    "invented name": _invented_name,
    "invented number": _invented_number,
    "digits swapped": _digits_swapped,
    "point moved": _point_moved,
    "letter changed": _letter_changed,
    "neighbouring row": _neighbour,
    "other field": _other_field,
    "wrong option": _wrong_option,
    "wrong currency": _wrong_currency,
    "wrong day": _wrong_day,
    "turned round": _turned_round,
}


def _is_day(leaf: _Leaf) -> bool:
    return _type(leaf.value) == "day"


def _is_number(leaf: _Leaf) -> bool:
    return _type(leaf.value) == "number"


def _is_words(leaf: _Leaf) -> bool:
    """Whether it is prose rather than a reference number: mostly letters."""
    if not isinstance(leaf.value, str) or leaf.options or _is_day(leaf):
        return False
    return sum(map(str.isalpha, leaf.value)) > 0.6 * len(leaf.value)


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "day" if value[:4].isdecimal() and value[4:5] == "-" and value[5:7].isdecimal() else "text"
    return "other"
