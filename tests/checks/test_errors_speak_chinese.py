"""Every error that people can meet is told in Chinese too, with the same values in it."""

import re
from string import Formatter

from penstock.kernel.errors import PenstockError
from tests.checks.test_errors_are_documented import coded_errors

HAN = re.compile(r"[\u4e00-\u9fff]")
REASONS_ONLY = "{reason}"  # a kind whose whole message is the reason it is given


def places(template: str) -> set[str]:
    """The values that a message shows. One that comes in both languages is called `name` and `name_zh`."""
    return {name.removesuffix("_zh") for _, name, _, _ in Formatter().parse(template) if name}


def is_missing(english: str, chinese: str) -> bool:
    return bool(english) and english != REASONS_ONLY and not HAN.search(chinese)


def test_every_message_and_hint_is_there():
    missing = [
        error.__name__
        for error in coded_errors()
        if is_missing(error.message, error.message_zh) or is_missing(error.hint, error.hint_zh)
    ]
    assert not missing, f"give these message_zh and hint_zh: {missing}"


def test_none_is_told_in_the_words_of_another():
    """A message of its own needs Chinese of its own: that of the kind above would say something else."""
    borrowed = [
        error.__name__
        for error in coded_errors()
        if ("message" in vars(error)) != ("message_zh" in vars(error))
        or ("hint" in vars(error)) != ("hint_zh" in vars(error))
    ]
    assert not borrowed, f"message and message_zh, hint and hint_zh go together: {borrowed}"


def test_both_languages_show_the_same_values():
    odd = {error.__name__ for error in coded_errors() if places(error.message) != places(error.message_zh)}
    odd -= {error.__name__ for error in coded_errors() if error is PenstockError}
    assert not odd, f"the placeholders of message and message_zh differ: {odd}"
