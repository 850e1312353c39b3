"""The source has no dust: no tiny file that belongs to its only importer, and no class name that means two things."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.checks import tree

MIN_LINES = 60
# The files that a module has in any case, however small: its tour, its spec, and what its jobs and timers run.
FIXED = {"__init__.py", "module.py", "worker.py"}
# What every module has under the same name: its dependencies, configuration and metrics, and the status of its tasks.
PATTERNS = {"Config", "Deps", "Metrics", "Status"}


def module_name(path: Path) -> str:
    parts = path.relative_to(tree.SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources() -> dict[str, Path]:
    return {module_name(path): path for path in tree.python_files("src") if "migrations" not in path.parts}


def imports_of(path: Path) -> list[tuple[str, str]]:
    """What a file imports, as (module, name); the name is empty where the module itself is imported."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
    return found


def importers() -> dict[str, set[str]]:
    """Who imports each module. A name re-exported by a package counts for the importer of the package."""
    modules = sources()
    exported = {
        (package, name): source
        for package, path in modules.items()
        if path.name == "__init__.py"
        for source, name in imports_of(path)
    }
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in modules.items():
        for source, name in imports_of(path):
            found[f"{source}.{name}" if f"{source}.{name}" in modules else exported.get((source, name), source)].add(
                module
            )
    return found


def test_no_tiny_file_has_a_single_importer():
    known = importers()
    tiny = {
        f"{path.relative_to(tree.SRC)} belongs into {next(iter(known[module]))}"
        for module, path in sources().items()
        if path.name not in FIXED
        and len(known[module]) == 1
        and len(path.read_text(encoding="utf-8").splitlines()) < MIN_LINES
    }
    assert not tiny, "\n".join(sorted(tiny))


def test_a_class_name_means_one_thing():
    places: dict[str, set[str]] = defaultdict(set)
    for module, path in sources().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(module)
    twice = {name: sorted(modules) for name, modules in places.items() if len(modules) > 1 and name not in PATTERNS}
    assert not twice, "\n".join(f"{name}: {', '.join(modules)}" for name, modules in sorted(twice.items()))


def test_an_importer_through_a_package_is_found():
    known = importers()
    assert "penstock.web.app" in known["penstock.wiring.runtime"]
    assert "penstock.kernel.maintenance" in known["penstock.kernel.scheduler"]
