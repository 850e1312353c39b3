"""Every figure is on its page, and the page invents none."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from penstock.settings import Settings
from penstock.web.app import build_app
from penstock.wiring import open_runtime
from tests.checks import tree


async def shown_names(folder: Path) -> set[str]:
    """All metric names, of the kernel and of every module."""
    async with open_runtime(Settings(data_dir=folder)) as runtime:
        page = (await build_app(runtime).state.metrics.page()).decode()
    return {_name(family.name, family.type) for family in text_string_to_metric_families(page)}


def _name(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


def documented_names() -> set[str]:
    rows = tree.rows(tree.reference("http.md"))
    return {row[0] for row in rows if row[0].startswith(("penstock_", "gateway_", "process_"))}


async def test_every_figure_is_documented(tmp_path: Path):
    missing = await shown_names(tmp_path) - documented_names()
    assert not missing, f"missing in the table of docs/reference/http.md: {missing}"


async def test_the_page_names_no_figure_that_does_not_exist(tmp_path: Path):
    invented = documented_names() - await shown_names(tmp_path)
    assert not invented, f"docs/reference/http.md names what does not exist: {invented}"
