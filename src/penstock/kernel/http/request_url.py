"""A key or a token in an address is refused, on every path.

Addresses end up in logs, histories and the `Referer` of the next page, so whoever sends a secret there has given it
away. It is refused even where nobody would read it, so that it is noticed on the first day. The answer does not repeat
the value, and what is logged of a request must not either.
"""

import re
from urllib.parse import unquote_to_bytes

from penstock.kernel.errors import Invalid

NAMES = frozenset(
    b"apikey xapikey key token accesstoken authtoken bearertoken idtoken refreshtoken sessiontoken "
    b"authorization bearer jwt password secret clientsecret".split()
)
MARKS = b"-_[] "  # do not count in a name: api-key, api_key and apikey[] are one
# Our keys and logins (sk-…, st-…), and what has the parts of a JWT. A match begins only where a word does: trying at
# every place of a long one would take a second of a small request.
SHAPES = re.compile(
    rb"(?<![A-Za-z0-9])s[kt]-[A-Za-z0-9_-]{40}|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{4,}+\.[A-Za-z0-9_-]{4,}+\."
)


class KeyInUrl(Invalid):
    """A key or a token was sent in the address."""

    code = "KEY_IN_URL"
    message = "The address carries a key or a token; addresses are logged and shared, so it is refused."
    message_zh = "地址中带有密钥或令牌；地址会被记录和分享，因此拒绝此请求。"
    hint = "Send it in X-API-Key or Authorization: Bearer, and revoke the one that was in the address."
    hint_zh = "请改用 X-API-Key 或 Authorization: Bearer 发送，并撤销已出现在地址中的密钥。"


def refuse_key_in_url(query_string: bytes) -> None:
    """Raise `KeyInUrl` when a query string holds a secret, by its name or by its looks."""
    if not query_string:
        return
    for part in query_string.split(b"&"):
        name = part.partition(b"=")[0]
        if b"%" in name or b"+" in name:
            name = unquote_to_bytes(name.replace(b"+", b" "))
        if name.lower().translate(None, MARKS) in NAMES:
            raise KeyInUrl
    plain = unquote_to_bytes(query_string) if b"%" in query_string else query_string
    if SHAPES.search(plain):
        raise KeyInUrl
