"""Elements and attributes of office files by their short names.

The same format comes under two sets of namespaces (transitional and strict), and the short names are the same in both.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterator

MOST_DIGITS = 18  # of 64 bits


def name_of(element: ET.Element) -> str:
    """Without the namespace."""
    return element.tag.rpartition("}")[2]


def child(element: ET.Element | None, *path: str) -> ET.Element | None:
    """The first child of that name, and its child, and so on; None where the path ends."""
    for name in path:
        if element is None:
            return None
        element = next((each for each in element if name_of(each) == name), None)
    return element


def children(element: ET.Element | None, name: str) -> Iterator[ET.Element]:
    """All children of that name."""
    return (each for each in (element if element is not None else ()) if name_of(each) == name)


def value(element: ET.Element | None, name: str = "val") -> str | None:
    """An attribute, with or without a namespace."""
    if element is None:
        return None
    plain = element.get(name)
    if plain is not None:
        return plain
    return next((each for key, each in element.items() if key.endswith("}" + name)), None)


def number(element: ET.Element | None, name: str = "val") -> int | None:
    """An attribute that is a whole number; None when it is anything else."""
    written = value(element, name)
    try:
        return int(written) if written is not None and len(written) <= MOST_DIGITS else None
    except ValueError:
        return None


def relation(element: ET.Element) -> str | None:
    """The id of a relation, which stands in a namespaced `id` beside a plain one of another meaning."""
    return next((each for key, each in element.items() if key.endswith("}id")), None)
