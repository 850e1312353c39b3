"""A migration that says `compatible = True` only adds: processes of the version before can live with it."""

import ast
from pathlib import Path

from penstock.kernel.migrations import VERSIONS

ADDS = {"create_table", "create_index", "add_column", "get_bind", "batch_alter_table"}
FIRST = "0019"  # from here on every migration says whether it is compatible


def steps() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(VERSIONS.glob("*.py"))}


def mark(tree: ast.Module) -> bool | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["compatible"]:
            return bool(ast.literal_eval(node.value))
    return None


def operations(tree: ast.Module) -> set[str]:
    """The operations that a migration calls, of `op` or of a batch."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {
        call.attr
        for call in calls
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name) and call.value.id in {"op", "batch"}
    }


def is_tight(column: ast.Call) -> bool:
    """Whether a process that does not know a column cannot insert a row without it."""
    options = {keyword.arg: ast.unparse(keyword.value) for keyword in column.keywords}
    return options.get("nullable") == "False" and "server_default" not in options


def tight_columns(tree: ast.Module) -> list[str]:
    added = [
        node.args[-1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_column"
    ]
    return [ast.unparse(column) for column in added if isinstance(column, ast.Call) and is_tight(column)]


def test_every_migration_says_whether_it_is_compatible():
    silent = [path.name for path, tree in steps().items() if path.name >= FIRST and mark(tree) is None]
    assert not silent, f"say `compatible = True` or `compatible = False` in {silent}"


def test_a_compatible_migration_only_adds():
    wrong = {
        path.name: [*sorted(operations(tree) - ADDS), *tight_columns(tree)]
        for path, tree in steps().items()
        if mark(tree)
    }
    assert not {name: why for name, why in wrong.items() if why}
