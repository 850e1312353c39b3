"""What a rule's options may say about asking a model. Options that nobody here knows are let alone."""

import math
from dataclasses import dataclass

from penstock.documents.chat_model import Which
from penstock.documents.extract.llm.errors import ModelRuleUnusable
from penstock.kernel.plain import Plain

MOST_NAME = 200
MOST_TEMPERATURE = 2
LEAST_CHUNK = 200  # characters; a model makes nothing of less


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options, each as it was meant."""

    which: Which = Which()  # noqa: RUF009  (a frozen value)
    null_ungrounded: bool = False
    chunk_characters: int | None = None  # no more than the settings allow


def read_options(options: Plain) -> Options:
    """The options of a rule; `ModelRuleUnusable` where one is none."""
    flaw = flaw_of_options(options)
    if flaw is not None:
        raise ModelRuleUnusable(reason=flaw)
    temperature = options.get("temperature")
    return Options(
        which=Which(
            server=options.get("server"),
            model=options.get("model"),
            temperature=None if temperature is None else float(temperature),
        ),
        null_ungrounded=bool(options.get("null_ungrounded")),
        chunk_characters=options.get("chunk_size_chars"),
    )


def flaw_of_options(options: Plain) -> str | None:
    """Why the options are not taken, or None when they are. An option that is null is as good as none."""
    for name in ("server", "model"):
        if not _is_name(options.get(name)):
            return f"options.{name} must be a text of 1 to {MOST_NAME} characters"
    if not _is_temperature(options.get("temperature")):
        return f"options.temperature must be a number from 0 to {MOST_TEMPERATURE}"
    if not isinstance(options.get("null_ungrounded"), bool | None):
        return "options.null_ungrounded must be true or false"
    if not _is_chunk(options.get("chunk_size_chars")):
        return f"options.chunk_size_chars must be a whole number of at least {LEAST_CHUNK}"
    return None


def _is_name(given: object) -> bool:
    if given is None:
        return True
    return isinstance(given, str) and bool(given.strip()) and len(given) <= MOST_NAME and given.isprintable()


def _is_temperature(given: object) -> bool:
    if given is None:
        return True
    if isinstance(given, bool) or not isinstance(given, int | float):
        return False
    return 0 <= given <= MOST_TEMPERATURE and math.isfinite(given)


def _is_chunk(given: object) -> bool:
    return given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= LEAST_CHUNK)
