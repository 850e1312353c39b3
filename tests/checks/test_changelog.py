"""The changelog is kept the same way everywhere, with a place for what is not released yet."""

import re

from tests.checks import tree

KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def changelog() -> str:
    return (tree.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_newest_section_is_unreleased():
    sections = re.findall(r"^## (.+)$", changelog(), flags=re.MULTILINE)
    assert sections
    assert sections[0] == "[Unreleased]"


def test_every_section_uses_the_known_kinds():
    kinds = set(re.findall(r"^### (.+)$", changelog(), flags=re.MULTILINE))
    assert kinds
    assert kinds <= KINDS, kinds - KINDS
