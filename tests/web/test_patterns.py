"""Every pattern of the API has a sentence for people: an invalid field is never answered with a regular expression."""

from collections.abc import Iterator
from typing import Any

from penstock.kernel.http.fields import PATTERN_REASONS
from penstock.web.app import build_app
from penstock.wiring import Runtime


def find_patterns(part: Any) -> Iterator[str]:
    """The values of `pattern` anywhere in an OpenAPI document, examples aside."""
    if isinstance(part, dict):
        if isinstance(part.get("pattern"), str):
            yield part["pattern"]
        for name, inner in part.items():
            if name not in {"example", "examples"}:
                yield from find_patterns(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from find_patterns(inner)


async def test_every_pattern_of_the_api_has_a_sentence_in_both_languages(runtime: Runtime):
    found = set(find_patterns(build_app(runtime).openapi()))
    assert len(found) >= 3
    assert found <= set(PATTERN_REASONS), f"add to PATTERN_REASONS: {found - set(PATTERN_REASONS)}"
    for english, chinese in PATTERN_REASONS.values():
        assert (english[0].isupper(), english.isascii(), chinese.isascii()) == (True, True, False)
