"""The pages that the code can print are the ones in the repository."""

import pytest

from tests.checks import tree
from tests.checks.print_reference import PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_prints(name: str):
    assert (tree.REFERENCE / name).read_text(encoding="utf-8") == PAGES[name](), "run: make docs"
