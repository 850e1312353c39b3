"""Tables as text (csv, tsv): their dialect is sniffed, and they are read in pages of 200 rows under their head."""

import csv
import itertools
from collections.abc import Iterator
from typing import BinaryIO, TextIO

from penstock.documents.blocks import MOST_COLUMNS, Block, PageEnd, Row, Rows
from penstock.documents.rejections import too_large
from penstock.documents.text.plain import opened

SAMPLE_CHARACTERS = 16_384
MOST_FIELD_CHARACTERS = 1_000_000
MOST_LINE_CHARACTERS = 4_000_000
SEPARATORS = ",;\t|"


def read_csv(file: BinaryIO, resume: str) -> Iterator[Block]:
    """The rows after `resume`, which is a place in the text."""
    with opened(file, newline="") as text:
        dialect = _dialect(text.read(SAMPLE_CHARACTERS))
        text.seek(0)
        head = next(_rows(text, dialect), None)
        if head is None:
            return
        if resume:
            text.seek(int(resume))
        gathered, is_first = Rows(head=head), not resume
        for row in _rows(text, dialect):
            gathered.add(row)
            if gathered.full:
                yield gathered.take()
                yield PageEnd(resume=str(text.tell()))
                is_first = False
        if gathered.rows or is_first:
            yield gathered.take()


def _rows(text: TextIO, dialect: type[csv.Dialect]) -> Iterator[Row]:
    """Rows that have something in them. Lines are asked for one by one, so that the text knows its own place."""
    csv.field_size_limit(MOST_FIELD_CHARACTERS)
    reader = csv.reader(_lines(text), dialect)
    try:
        for row in reader:
            if len(row) > MOST_COLUMNS:
                raise too_large(f"line {reader.line_num} has more than {MOST_COLUMNS} columns")
            if any(cell.strip() for cell in row):
                yield tuple(row)
    except csv.Error as error:
        raise too_large(f"the row that ends in line {reader.line_num} cannot be taken: {error}") from error


def _lines(text: TextIO) -> Iterator[str]:
    while line := text.readline(MOST_LINE_CHARACTERS + 1):
        if len(line) > MOST_LINE_CHARACTERS:
            raise too_large(f"a line has more than {MOST_LINE_CHARACTERS} characters")
        yield line.replace("\0", "")


def _dialect(sample: str) -> type[csv.Dialect]:
    """Fields in double quotes, between the separator that cuts most lines alike. Python's sniffer guesses more freely,
    takes letters for separators, and can be made to think for minutes."""
    lines = [line for line in sample.splitlines()[:50] if line.strip()]
    best = max(SEPARATORS, key=lambda each: _evenness(lines, each))

    class _Sniffed(csv.excel):
        delimiter = best

    return _Sniffed


def _evenness(lines: list[str], separator: str) -> tuple[int, int]:
    """In how many lines it occurs as often as it mostly does, and how often that is."""
    counts = [_unquoted(line).count(separator) for line in lines]
    groups = [(len(list(group)), count) for count, group in itertools.groupby(sorted(counts)) if count]
    return max(groups, default=(0, 0))


def _unquoted(line: str) -> str:
    return "".join(line.split('"')[::2])
