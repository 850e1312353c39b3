"""Elements and attributes by local name.

Office Open XML exists with two sets of namespaces (transitional and strict) that share their local names.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterator

MAX_DIGITS = 18  # fits 64 bits


def name_of(element: ET.Element) -> str:
    """The local name of an element."""
    return element.tag.rpartition("}")[2]


def child(element: ET.Element | None, *path: str) -> ET.Element | None:
    """The descendant at a path of local names; None if it does not exist."""
    for name in path:
        if element is None:
            return None
        element = next((each for each in element if name_of(each) == name), None)
    return element


def children(element: ET.Element | None, name: str) -> Iterator[ET.Element]:
    """The children with a local name."""
    return (each for each in (element if element is not None else ()) if name_of(each) == name)


def value(element: ET.Element | None, name: str = "val") -> str | None:
    """An attribute by local name."""
    if element is None:
        return None
    plain = element.get(name)
    if plain is not None:
        return plain
    return next((each for key, each in element.items() if key.endswith("}" + name)), None)


def number(element: ET.Element | None, name: str = "val") -> int | None:
    """An integer attribute; None if it is missing or not an integer."""
    written = value(element, name)
    try:
        return int(written) if written is not None and len(written) <= MAX_DIGITS else None
    except ValueError:
        return None


def relationship_id(element: ET.Element) -> str | None:
    """The relationship id: an `id` attribute with a namespace, beside a plain `id` of another meaning."""
    return next((each for key, each in element.items() if key.endswith("}id")), None)
