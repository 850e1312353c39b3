"""The language of a response."""

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request

from penstock.kernel.errors import DiskFull
from penstock.kernel.http.language import language_tag, localized, prefers_chinese
from tests.asgi import scope_of


@pytest.mark.parametrize(
    ("accepted", "chinese"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", True),
        ("zh", True),
        ("ZH-hans-CN", True),
        ("fr, zh;q=0.5", True),
        ("zh, en", True),
        ("en;q=0.3, zh;q=0.4", True),
        ("en-US,en;q=0.9,zh;q=0.8", False),
        ("en, zh", False),
        ("zh;q=0", False),
        ("zh;q=0.1, *;q=0.5", False),
        ("zh;q=nonsense", False),
        ("zh;q=nan", False),
        ("*", False),
        ("fr", False),
        ("", False),
        ("en," * 30 + "zh", False),
    ],
)
def test_chinese_is_used_where_it_is_preferred_to_english(accepted: str, chinese: bool):
    assert prefers_chinese(Headers({"Accept-Language": accepted})) is chinese


def test_a_request_works_as_well_as_its_headers():
    request = Request(scope_of("GET", "/", [("accept-language", "zh-CN")]))
    assert prefers_chinese(request)
    assert language_tag(request) == "zh-CN"
    assert not prefers_chinese(Request(scope_of("GET", "/")))


def test_error_texts_are_in_the_language_of_the_request():
    error = DiskFull(what="page 3")
    assert localized(error, {}) == ("There is no space left to write page 3.", error.hint)
    assert localized(error, {"accept-language": "zh"}) == ("没有剩余空间可写入 page 3。", error.hint_zh)
