"""The repository and its package, as the checks read them."""

import ast
import importlib
import os
import pkgutil
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import penstock

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "penstock"
REFERENCE = ROOT / "docs" / "reference"


def files(root: Path = ROOT) -> Iterator[Path]:
    """Every file that belongs to the repository: what .gitignore names is left out, and git itself is not needed."""
    lines = (root / ".gitignore").read_text().splitlines()
    ignored = [line.strip("/") for line in lines if line and not line.startswith("#")] + [".git"]

    def kept(path: Path) -> bool:
        names = (path.name, path.relative_to(root).as_posix())
        return not any(fnmatch(name, pattern) for name in names for pattern in ignored)

    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if kept(here / name))
        yield from (here / name for name in sorted(names) if kept(here / name))


def python_files(*tops: str) -> Iterator[Path]:
    """The Python files under these top folders, or everywhere."""
    for path in files():
        if path.suffix == ".py" and (not tops or path.relative_to(ROOT).parts[0] in tops):
            yield path


def text_of(path: Path) -> str | None:
    """The text of a file, or None when it holds something else."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def modules() -> list[ModuleType]:
    """Every module of the package, imported. Migrations are left out: they only run inside Alembic."""
    found = pkgutil.walk_packages(penstock.__path__, "penstock.", onerror=_fail)
    names = [module.name for module in found if ".migrations." not in module.name]
    return [penstock, *(importlib.import_module(name) for name in names)]


def _fail(name: str) -> None:
    raise ImportError(f"{name} cannot be imported")


def reference(page: str) -> str:
    """The text of a reference page."""
    return (REFERENCE / page).read_text(encoding="utf-8")


def rows(markdown: str) -> list[list[str]]:
    """The body rows of all tables of a page, cell by cell, without the backticks around a whole cell."""
    body: list[list[str]] = []
    in_body = False
    for line in prose(markdown).splitlines():
        if not line.startswith("|"):
            in_body = False
        elif re.fullmatch(r"[|:\- ]+", line):
            in_body = True
        elif in_body:
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            body.append([cell.strip().strip("`").replace("\\|", "|") for cell in cells])
    return body


def prose(markdown: str) -> str:
    """A page without its fenced code."""
    return re.sub(r"^(```|~~~).*?^\1[^\n]*$", "", markdown, flags=re.MULTILINE | re.DOTALL)


def defined_tests(path: Path) -> set[str]:
    """The tests a file defines, as `test_name` or `Class::test_name`."""
    found: set[str] = set()

    def walk(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}::")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found.add(prefix + node.name)

    walk(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return found
