"""Limits for a file that breaks its parser."""

from penstock.adapters.local_reader import ReaderLimits
from penstock.etl.deps import Config

MIB = 1024 * 1024
HALVES = (50, 25, 13, 7, 4, 2, 1)  # of a stretch, down to one page


def test_two_pages_that_hang_the_parser_do_not_use_up_the_time_of_a_stage():
    limits = ReaderLimits()
    lost = sum(limits.parsing_again(MIB, pages).seconds for pages in HALVES)
    assert limits.parsing(MIB).seconds + 2 * lost < Config().task_timeout
    assert limits.parsing_again(MIB, 1).seconds <= 10


def test_a_large_file_has_more_time_but_never_more_than_at_first():
    limits = ReaderLimits()
    assert limits.parsing_again(512 * MIB, 1).seconds > limits.parsing_again(MIB, 1).seconds
    assert limits.parsing_again(100_000 * MIB, 100) == limits.parsing(100_000 * MIB)
