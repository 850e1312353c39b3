"""The language of a response: English, or Chinese where Accept-Language prefers it.

Only texts for people are translated: messages and hints. Codes, fields and values stay as they are.
"""

from collections.abc import Mapping
from itertools import islice

from starlette.requests import HTTPConnection

from penstock.kernel.errors import PenstockError

MAX_RANGES = 20  # of an Accept-Language header; browsers send five
CHINESE, ENGLISH = "zh", "en"


def prefers_chinese(request: HTTPConnection | Mapping[str, str]) -> bool:
    """Whether a request, or its headers, prefer Chinese to English."""
    headers = request.headers if isinstance(request, HTTPConnection) else request
    accepted = headers.get("accept-language", "")
    if CHINESE not in accepted.lower():
        return False
    weights: dict[str, float] = {}
    for part in islice(accepted.lower().split(","), MAX_RANGES):
        language, weight = _parse_range(part)
        weights[language] = max(weight, weights.get(language, 0))
    wildcard = weights.get("*", 0.0)
    chinese, english = weights.get(CHINESE, wildcard), weights.get(ENGLISH, wildcard)
    return chinese > english or (chinese == english > 0 and _first(weights) == CHINESE)


def localized(error: PenstockError, request: HTTPConnection | Mapping[str, str]) -> tuple[str, str]:
    """The message and the hint of an error, in the language of the request."""
    if prefers_chinese(request):
        return error.in_chinese(), error.hint_zh
    return str(error), error.hint


def language_tag(request: HTTPConnection | Mapping[str, str]) -> str:
    """The Content-Language of a response made of `localized` texts."""
    return "zh-CN" if prefers_chinese(request) else ENGLISH


def _parse_range(part: str) -> tuple[str, float]:
    """`zh-CN;q=0.9` as its language and its weight; an unreadable weight is 0."""
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
