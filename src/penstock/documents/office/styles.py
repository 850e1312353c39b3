"""Headings and lists of a docx, resolved from its styles and numbering."""

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

from penstock.documents.office.package import Package
from penstock.documents.office.xml_names import child, children, number, value

HEADING = re.compile(r"(?:heading|标题)\s*([1-9])$", re.IGNORECASE)
MAX_ANCESTORS = 20  # styles can be based on each other in a cycle
LEVELS = 9  # of a list
PLAIN_LEVEL = 9  # outline level of body text


@dataclass(frozen=True, kw_only=True)
class Style:
    """A paragraph style: name, parent, paragraph properties."""

    name: str
    based_on: str | None
    properties: ET.Element | None


@dataclass(kw_only=True)
class Styles:
    """The styles and lists of one document. Numbers list items in the order of the calls."""

    styles: dict[str, Style]
    formats: dict[tuple[str, int], str]  # by list and level: bullet, decimal, …
    _counts: dict[str, list[int]] = field(default_factory=dict)  # by list: the last number at each level

    def heading_level(self, properties: ET.Element | None) -> int | None:
        """The level of a heading, from 1; None for other paragraphs."""
        own = number(child(properties, "outlineLvl"))
        if own is not None:
            return own + 1 if 0 <= own < PLAIN_LEVEL else None
        for style in self._ancestry(properties):
            if style.name.lower() in {"title", "标题"}:
                return 1
            if named := HEADING.match(style.name):
                return int(named[1])
            outline = number(child(style.properties, "outlineLvl"))
            if outline is not None:
                return outline + 1 if 0 <= outline < PLAIN_LEVEL else None
        return None

    def place_in_list(self, properties: ET.Element | None) -> tuple[int, int | None] | None:
        """The list level and number of a paragraph (number None for a bullet); None outside lists."""
        listed, level = self._list_of(properties)
        form = self.formats.get((listed, level)) if listed else None
        if listed is None or form is None or form == "none":
            return None
        if form == "bullet":
            return level, None
        counts = self._counts.setdefault(listed, [0] * LEVELS)
        counts[level] += 1
        counts[level + 1 :] = [0] * (LEVELS - level - 1)
        return level, counts[level]

    def _list_of(self, properties: ET.Element | None) -> tuple[str | None, int]:
        for each in (properties, *(style.properties for style in self._ancestry(properties))):
            listed = value(child(each, "numPr", "numId"))
            if listed is not None:
                level = number(child(each, "numPr", "ilvl")) or 0
                return (None if listed == "0" else listed), min(max(level, 0), LEVELS - 1)
        return None, 0

    def _ancestry(self, properties: ET.Element | None) -> list[Style]:
        found: list[Style] = []
        name = value(child(properties, "pStyle"))
        while name in self.styles and len(found) < MAX_ANCESTORS:
            found.append(self.styles[name])
            name = found[-1].based_on
        return found


def styles_of(package: Package, main: str) -> Styles:
    """Read the styles and numbering of a package, which may have none."""
    styles, numbering = package.related(main, "styles"), package.related(main, "numbering")
    return Styles(
        styles=_styles(package.tree(styles)) if styles else {},
        formats=_formats(package.tree(numbering)) if numbering else {},
    )


def _styles(root: ET.Element) -> dict[str, Style]:
    return {
        value(each, "styleId") or "": Style(
            name=value(child(each, "name")) or "",
            based_on=value(child(each, "basedOn")),
            properties=child(each, "pPr"),
        )
        for each in children(root, "style")
    }


def _formats(root: ET.Element) -> dict[tuple[str, int], str]:
    """Number formats by list and level. A list refers to an abstract list, which has a format for each level."""
    abstract = {
        value(each, "abstractNumId"): {
            number(level, "ilvl") or 0: value(child(level, "numFmt")) or "decimal" for level in children(each, "lvl")
        }
        for each in children(root, "abstractNum")
    }
    return {
        (value(each, "numId") or "", level): form
        for each in children(root, "num")
        for level, form in abstract.get(value(child(each, "abstractNumId")), {}).items()
    }
