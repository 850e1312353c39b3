"""The options of a rule that concern the model."""

from typing import Any

import pytest

from penstock.documents.chat_model import ModelChoice
from penstock.documents.extract.errors import ModelRuleUnusable
from penstock.documents.extract.llm.options import LlmOptions, options_error, read_options


def test_options_are_parsed():
    given = {"server": "near", "model": "m", "temperature": 1, "null_ungrounded": True, "chunk_size_chars": 900}
    which = ModelChoice(server="near", model="m", temperature=1.0)
    assert read_options(given) == LlmOptions(which=which, null_ungrounded=True, chunk_characters=900)


def test_missing_unknown_and_null_options_are_valid():
    assert read_options({}) == read_options({"server": None, "temperature": None, "colour": [1]}) == LlmOptions()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("server", 5),
        ("server", " "),
        ("model", ["m"]),
        ("model", "m" * 201),
        ("model", "a\nb"),
        ("temperature", "hot"),
        ("temperature", True),
        ("temperature", 2.1),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("null_ungrounded", "yes"),
        ("null_ungrounded", 1),
        ("chunk_size_chars", 199),
        ("chunk_size_chars", 1000.5),
        ("chunk_size_chars", True),
        ("chunk_size_chars", "many"),
    ],
)
def test_an_invalid_option_is_named(option: str, value: Any):
    assert f"options.{option} must be" in (options_error({option: value}) or "")
    with pytest.raises(ModelRuleUnusable, match=option):
        read_options({option: value})
