"""The options of a rule that concern the model.

A rule selects a configured server by name and cannot contain a URL: anyone who may create rules could send our keys and
documents elsewhere. Unknown options are ignored.
"""

import math
from dataclasses import dataclass

from penstock.documents.chat_model import ModelChoice
from penstock.documents.extract.errors import ModelRuleUnusable
from penstock.kernel.json_object import JsonObject

MAX_NAME = 200
MAX_TEMPERATURE = 2
MIN_CHUNK = 200  # characters; less is useless to a model


@dataclass(frozen=True, kw_only=True)
class LlmOptions:
    """Parsed options."""

    which: ModelChoice = ModelChoice()  # noqa: RUF009  (a frozen value)
    null_ungrounded: bool = False
    chunk_characters: int | None = None  # capped by the settings


def read_options(options: JsonObject) -> LlmOptions:
    """Parse the options of a rule. Raises `ModelRuleUnusable` for an invalid one."""
    error = options_error(options)
    if error is not None:
        raise ModelRuleUnusable(reason=error)
    temperature = options.get("temperature")
    return LlmOptions(
        which=ModelChoice(
            server=options.get("server"),
            model=options.get("model"),
            temperature=None if temperature is None else float(temperature),
        ),
        null_ungrounded=bool(options.get("null_ungrounded")),
        chunk_characters=options.get("chunk_size_chars"),
    )


def options_error(options: JsonObject) -> str | None:
    """Why the options are invalid; None when they are valid. Null counts as not set."""
    for name in ("server", "model"):
        if not _is_name(options.get(name)):
            return f"options.{name} must be a string of 1 to {MAX_NAME} characters"
    if not _is_temperature(options.get("temperature")):
        return f"options.temperature must be a number from 0 to {MAX_TEMPERATURE}"
    if not isinstance(options.get("null_ungrounded"), bool | None):
        return "options.null_ungrounded must be true or false"
    if not _is_chunk(options.get("chunk_size_chars")):
        return f"options.chunk_size_chars must be an integer of at least {MIN_CHUNK}"
    return None


def _is_name(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, str) and bool(value.strip()) and len(value) <= MAX_NAME and value.isprintable()


def _is_temperature(value: object) -> bool:
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= MAX_TEMPERATURE and math.isfinite(value)


def _is_chunk(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= MIN_CHUNK)
