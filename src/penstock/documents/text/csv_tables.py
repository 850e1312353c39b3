"""CSV and TSV: detects the dialect and reads pages of 200 rows, each below the header, in constant memory."""

import csv
import itertools
from collections.abc import Iterator
from typing import BinaryIO, TextIO

from penstock.documents.blocks import MAX_COLUMNS, Block, PageBreak, Row, TableBuilder
from penstock.documents.rejections import too_large
from penstock.documents.text.plain import open_text

SAMPLE_CHARACTERS = 16_384
MAX_FIELD_CHARACTERS = 1_000_000
MAX_LINE_CHARACTERS = 4_000_000
SEPARATORS = ",;\t|"


def read_csv(file: BinaryIO, resume: str) -> Iterator[Block]:
    """Yield tables from a position in the text on."""
    with open_text(file, newline="") as text:
        dialect = _dialect(text.read(SAMPLE_CHARACTERS))
        text.seek(0)
        head = next(_rows(text, dialect), None)
        if head is None:
            return
        if resume:
            text.seek(int(resume))
        builder, is_first = TableBuilder(head=head), not resume
        for row in _rows(text, dialect):
            builder.add(row)
            if builder.full:
                yield builder.take()
                yield PageBreak(resume=str(text.tell()))
                is_first = False
        if builder.rows or is_first:
            yield builder.take()


def _rows(text: TextIO, dialect: type[csv.Dialect]) -> Iterator[Row]:
    """Rows that are not empty. Lines are read one by one, so that `tell` gives the position after a row."""
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    reader = csv.reader(_lines(text), dialect)
    try:
        for row in reader:
            if len(row) > MAX_COLUMNS:
                raise too_large(f"line {reader.line_num} has more than {MAX_COLUMNS} columns")
            if any(cell.strip() for cell in row):
                yield tuple(row)
    except csv.Error as error:
        raise too_large(f"the row that ends in line {reader.line_num} is invalid: {error}") from error


def _lines(text: TextIO) -> Iterator[str]:
    while line := text.readline(MAX_LINE_CHARACTERS + 1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise too_large(f"a line has more than {MAX_LINE_CHARACTERS} characters")
        yield line.replace("\0", "")


def _dialect(sample: str) -> type[csv.Dialect]:
    """Double quotes, and the separator that splits most lines evenly. Python's sniffer takes letters for separators and
    can be made to run for minutes."""
    lines = [line for line in sample.splitlines()[:50] if line.strip()]
    best = max(SEPARATORS, key=lambda each: _evenness(lines, each))

    class _Sniffed(csv.excel):
        delimiter = best

    return _Sniffed


def _evenness(lines: list[str], separator: str) -> tuple[int, int]:
    """How many lines have the most frequent count of a separator, and that count."""
    counts = [_unquoted(line).count(separator) for line in lines]
    groups = [(len(list(group)), count) for count, group in itertools.groupby(sorted(counts)) if count]
    return max(groups, default=(0, 0))


def _unquoted(line: str) -> str:
    return "".join(line.split('"')[::2])
