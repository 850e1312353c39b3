"""Rows of labels beside values are split; real rows are kept."""

import pytest

from penstock.documents.layout.lines import TableCell
from penstock.documents.pages import Box
from penstock.documents.pdf.table_rows import split_row, table_markdown


def row_of(*columns: list[str]) -> tuple[list[TableCell], list[tuple[str, Box]]]:
    """A row of cells and its runs; the lines of all cells start at the same height."""
    cells = [TableCell(" ".join(lines), (100.0 * at, 50, 100.0 * at + 90, 62)) for at, lines in enumerate(columns)]
    pieces = [
        (text, (100.0 * at, 50 + 14.0 * line, 100.0 * at + 80, 60 + 14.0 * line))
        for at, lines in enumerate(columns)
        for line, text in enumerate(lines)
    ]
    return cells, pieces


@pytest.mark.parametrize(
    "columns",
    [
        (["No.:", "Date:"], ["A-17", "5 Jan"]),
        (["Mill Street 5"], ["No.:", "Date:", "Agent:"], ["A-17", "Ann"]),
        (["No.", "Date", "Due"], ["A-17", "5 Jan", "9 Jan"]),
    ],
)
def test_labels_beside_their_values_are_split(columns: tuple[list[str], ...]):
    apart = split_row(*row_of(*columns))
    assert [[text for text, _ in cell] for cell in apart] == list(columns)


@pytest.mark.parametrize(
    "columns",
    [
        (["Unit", "price"], ["Total", "amount"]),
        (["Deep well", "pump"], ["2 of 3", "4 of 5"]),
        (["A pump", "for deep", "wells"], ["2"], ["450.00"]),
        (["Date:"], ["5 Jan"]),
        (["Color:", "red"], ["2"]),
        (["No.:", "Date:"],),
    ],
)
def test_a_row_is_kept(columns: tuple[list[str], ...]):
    assert split_row(*row_of(*columns)) == []


def test_a_row_is_kept_when_its_runs_differ_from_its_cells():
    cells, pieces = row_of(["No.:", "Date:"], ["A-17", "5 Jan"])
    assert split_row(cells, pieces[:-1]) == []


class TestInMarkdown:
    def test_such_a_row_becomes_rows(self):
        head, _ = row_of(["a"], ["b"], ["c"])
        cells, pieces = row_of(["Mill Street"], ["No.:", "Date:"], ["A-17", "5 Jan"])
        assert table_markdown([head, cells], pieces) == (
            "| a | b | c |\n|---|---|---|\n| Mill Street | No.: | A-17 |\n|  | Date: | 5 Jan |"
        )

    def test_a_bar_in_a_cell_is_no_border(self):
        cells, pieces = row_of(["O'Neil | Co"], ["3.00"])
        assert table_markdown([cells], pieces) == "| O'Neil \\| Co | 3.00 |\n|---|---|"

    def test_a_tab_in_a_cell_begins_no_other(self):
        cells, pieces = row_of(["Pump\tXL"], ["3.00"])
        assert table_markdown([cells], pieces) == "| Pump\tXL | 3.00 |\n|---|---|"
