"""Links between pages lead somewhere, and every page can be reached from the front."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.checks import tree

LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def pages() -> list[Path]:
    docs = tree.ROOT / "docs"
    return [path for path in tree.files() if path == tree.ROOT / "README.md" or _is_page(path, docs)]


def _is_page(path: Path, docs: Path) -> bool:
    return path.suffix == ".md" and path.is_relative_to(docs)


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The files, each with an anchor or '', that a page links to inside the repository."""
    text = re.sub(r"`[^`\n]*`", "", tree.prose(page.read_text(encoding="utf-8")))
    for target in LINK.findall(text):
        if ELSEWHERE.match(target):
            continue
        name, _, anchor = target.partition("#")
        yield ((page.parent / name).resolve() if name else page), anchor


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as common renderers make them."""
    headings = re.findall(r"^#+ (.+?)\s*$", tree.prose(page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(target: Path, anchor: str) -> bool:
    if not target.is_relative_to(tree.ROOT) or not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target)


def test_every_relative_link_leads_somewhere():
    found = pages()
    assert found
    broken = [
        f"{page.relative_to(tree.ROOT)} -> {target.name}#{anchor}"
        for page in found
        for target, anchor in links(page)
        if not leads_somewhere(target, anchor)
    ]
    assert not broken, "\n".join(broken)


def test_every_page_can_be_reached_from_the_front():
    unreached = set(pages())
    waiting = {tree.ROOT / "README.md", tree.ROOT / "docs" / "README.md"} & unreached
    while waiting:
        page = waiting.pop()
        unreached.discard(page)
        targets = {target / "README.md" if target.is_dir() else target for target, _ in links(page)}
        waiting |= targets & unreached
    assert not unreached, sorted(str(page.relative_to(tree.ROOT)) for page in unreached)
