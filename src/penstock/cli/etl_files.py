"""Which files a person meant: those they named, and in folders those of a kind that can be read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.documents.kinds import NAMES, Kind

READABLE = frozenset({f".{kind}" for kind in Kind} | set(NAMES) | {".jpg", ".tif"})


@dataclass(frozen=True, kw_only=True)
class Document:
    """A file, and what it is called beside the others: its place in the folder that was named, without slashes."""

    path: Path
    name: str


@dataclass(kw_only=True)
class Found:
    """What there is to submit, and what was left out of folders."""

    documents: list[Document] = field(default_factory=list)
    left_out: list[Path] = field(default_factory=list)


def find(paths: Iterable[Path]) -> Found:
    """The documents that were named. A file is taken whatever its name: its content says what it is."""
    found, seen = Found(), set()
    for path in paths:
        for file in _below(path) if path.is_dir() else (path,):
            if path.is_dir() and (file.suffix.lower() not in READABLE or _leads_out(file, path)):
                found.left_out.append(file)
                continue
            if (place := file.resolve()) in seen:
                continue
            seen.add(place)
            found.documents.append(Document(path=file, name=_name(file, path)))
    _tell_apart(found.documents)
    return found


def _below(folder: Path) -> Iterator[Path]:
    """Every file in a folder and below it; what is hidden stays so."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def _leads_out(file: Path, folder: Path) -> bool:
    """Whether it is a link to somewhere else: who gave us the folder may have wanted another file of ours."""
    return not file.resolve().is_relative_to(folder.resolve())


def _name(file: Path, named: Path) -> str:
    return file.name if file == named else "_".join(file.relative_to(named).parts)


def _tell_apart(documents: list[Document]) -> None:
    """Two documents of one project must not have one name: the later would take the earlier's place."""
    taken: set[str] = set()
    for at, document in enumerate(documents):
        name, number = document.name, 1
        while name in taken:
            number += 1
            name = f"{document.path.stem}-{number}{document.path.suffix}"
        taken.add(name)
        documents[at] = Document(path=document.path, name=name)
