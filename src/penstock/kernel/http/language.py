"""In which language a caller is answered: English, or Chinese where Accept-Language asks for it.

Only what people read is translated, the message and the hint of an error. Codes, fields and values stay as they are.
"""

from collections.abc import Mapping
from itertools import islice

from starlette.requests import HTTPConnection

from penstock.kernel.errors import PenstockError

MOST_RANGES = 20  # of a header that lists languages; browsers send five
CHINESE, ENGLISH = "zh", "en"


def speaks_chinese(asker: HTTPConnection | Mapping[str, str]) -> bool:
    """Whether a request, or its headers, ask for Chinese before English."""
    headers = asker.headers if isinstance(asker, HTTPConnection) else asker
    asked = headers.get("accept-language", "")
    if CHINESE not in asked.lower():
        return False
    weights: dict[str, float] = {}
    for part in islice(asked.lower().split(","), MOST_RANGES):
        language, weight = _range(part)
        weights[language] = max(weight, weights.get(language, 0))
    others = weights.get("*", 0.0)
    chinese, english = weights.get(CHINESE, others), weights.get(ENGLISH, others)
    return chinese > english or (chinese == english > 0 and _first(weights) == CHINESE)


def words(error: PenstockError, asker: HTTPConnection | Mapping[str, str]) -> tuple[str, str]:
    """The message and the hint of an error, in the asker's language."""
    if speaks_chinese(asker):
        return error.in_chinese(), error.hint_zh
    return str(error), error.hint


def language_tag(asker: HTTPConnection | Mapping[str, str]) -> str:
    """What Content-Language says of an answer made of `words`."""
    return "zh-CN" if speaks_chinese(asker) else ENGLISH


def _range(part: str) -> tuple[str, float]:
    """`zh-CN;q=0.9` as its language and its weight; what cannot be read weighs nothing."""
    tag, _, parameters = part.partition(";")
    language = tag.strip().partition("-")[0]
    name, _, number = parameters.partition("=")
    if name.strip() != "q":
        return language, 1.0
    try:
        return language, min(1.0, max(0.0, float(number)))
    except ValueError:
        return language, 0.0


def _first(weights: Mapping[str, float]) -> str:
    return next(language for language in weights if language in (CHINESE, ENGLISH))
