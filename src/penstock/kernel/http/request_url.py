"""Checks the URL of a request: no NUL, a query in UTF-8 that is not too long, no API key or token in the query.

URLs end up in logs, browser histories and `Referer` headers, so a key in a URL has leaked. It is refused on every
path, even where no route would read it, so that the mistake is noticed on the first day. Neither the response nor the
log repeats the value.
"""

import re
from urllib.parse import quote_from_bytes, unquote_to_bytes

from starlette.types import Scope

from penstock.kernel.errors import Invalid, TooLarge

MAX_QUERY_BYTES = 8192
PRINTABLE_ASCII = bytes(range(0x21, 0x7F))
SECRET_NAMES = frozenset(
    b"apikey xapikey key token accesstoken authtoken bearertoken idtoken refreshtoken sessiontoken "
    b"authorization bearer jwt password secret clientsecret".split()
)
IGNORED = b"-_[] "  # in a parameter name: api-key, api_key and apikey[] are one
# Our keys and tokens (sk-…, st-…, su-…), and what has the parts of a JWT. A match starts only at the start of a word:
# trying at every position of a long one would take a second for a small request.
SECRET_SHAPES = re.compile(
    rb"(?<![A-Za-z0-9])s[ktu]-[A-Za-z0-9_-]{40}|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{4,}+\.[A-Za-z0-9_-]{4,}+\."
)


class UrlTooLong(TooLarge):
    """The query string of the URL is too long."""

    code = "URL_TOO_LONG"
    message = "The query string of the URL is longer than {most_bytes} bytes."
    message_zh = "URL 的查询字符串超过 {most_bytes} 字节。"
    hint = "Request less at once, or send the parameters in a body where the route accepts one."
    hint_zh = "请减少单次查询的内容，或在支持的路由上改用请求体发送。"
    status = 414


class BadUrl(Invalid):
    """The URL contains a NUL character, or a query string that is not UTF-8."""

    code = "BAD_URL"
    message = "Invalid URL: {reason}."
    message_zh = "无效的 URL：{reason_zh}。"
    hint = "Remove %00, and send the query string as UTF-8, percent-encoded or as it is."
    hint_zh = "请去掉 %00，并以 UTF-8 发送查询字符串，可以百分号编码，也可以直接发送。"


class KeyInUrl(Invalid):
    """The URL contains an API key or a token."""

    code = "KEY_IN_URL"
    message = "The URL contains a key or a token; URLs are logged and shared, so the request is refused."
    message_zh = "URL 中带有密钥或令牌；URL 会被记录和分享，因此拒绝此请求。"
    hint = "Send it in X-API-Key or Authorization: Bearer, and revoke the one that was in the URL."
    hint_zh = "请改用 X-API-Key 或 Authorization: Bearer 发送，并撤销已出现在 URL 中的密钥。"


def check_url(scope: Scope) -> None:
    """Raise when the URL of a request is not acceptable."""
    query: bytes = scope["query_string"]
    if "\0" in scope["path"] or b"%00" in query:
        raise BadUrl(reason="it contains a NUL character", reason_zh="含有 NUL 字符")
    if not query:
        return
    if len(query) > MAX_QUERY_BYTES:
        raise UrlTooLong(most_bytes=MAX_QUERY_BYTES)
    refuse_key_in_url(query)
    if b"%" in query or not query.isascii():
        scope["query_string"] = _percent_encoded(query)


def _percent_encoded(query: bytes) -> bytes:
    """The query in ASCII. The framework would read raw bytes as Latin-1, and a search for Chinese text would find
    nothing; bytes that are not UTF-8 would find nothing either."""
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError as error:
        raise BadUrl(reason="the query string is not UTF-8", reason_zh="查询字符串不是 UTF-8") from error
    return query if query.isascii() else quote_from_bytes(query, PRINTABLE_ASCII).encode("ascii")


def refuse_key_in_url(query_string: bytes) -> None:
    """Raise `KeyInUrl` when a query string holds a secret, by the parameter's name or by its shape."""
    if not query_string:
        return
    for part in query_string.split(b"&"):
        name = part.partition(b"=")[0]
        if b"%" in name or b"+" in name:
            name = unquote_to_bytes(name.replace(b"+", b" "))
        if name.lower().translate(None, IGNORED) in SECRET_NAMES:
            raise KeyInUrl
    plain = unquote_to_bytes(query_string) if b"%" in query_string else query_string
    if SECRET_SHAPES.search(plain):
        raise KeyInUrl
