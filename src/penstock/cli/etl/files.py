"""Which files to submit: those given, and in folders those with a readable type."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.documents.kinds import EXTENSIONS, Kind

READABLE = frozenset({f".{kind}" for kind in Kind} | set(EXTENSIONS) | {".jpg", ".tif"})


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file to submit. `name` is its path in the given folder with `_` for slashes, unique within the command."""

    path: Path
    name: str


def find_files(paths: Iterable[Path]) -> tuple[list[InputFile], list[Path]]:
    """The files to submit, and the files in folders that are skipped.

    A file that is given by itself is accepted whatever its suffix: its content decides what it is.
    """
    files: list[InputFile] = []
    skipped: list[Path] = []
    seen: set[Path] = set()
    for path in paths:
        for file in _walk(path) if path.is_dir() else (path,):
            if path.is_dir() and (file.suffix.lower() not in READABLE or _leads_out(file, path)):
                skipped.append(file)
                continue
            if (target := file.resolve()) in seen:
                continue
            seen.add(target)
            name = file.name if file == path else "_".join(file.relative_to(path).parts)
            files.append(InputFile(path=file, name=name))
    return _with_unique_names(files), skipped


def _walk(folder: Path) -> Iterator[Path]:
    """Every file below a folder, except hidden ones."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def _leads_out(file: Path, folder: Path) -> bool:
    """Whether it is a symlink out of the folder: someone else may have put it there to get at another file of ours."""
    return not file.resolve().is_relative_to(folder.resolve())


def _with_unique_names(files: Iterable[InputFile]) -> list[InputFile]:
    """Two documents of one project must not share a name: the later would replace the earlier."""
    taken: set[str] = set()
    unique = []
    for file in files:
        name, number = file.name, 1
        while name in taken:
            number += 1
            name = f"{file.path.stem}-{number}{file.path.suffix}"
        taken.add(name)
        unique.append(InputFile(path=file.path, name=name))
    return unique
