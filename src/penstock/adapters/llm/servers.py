"""Which servers of models there are, and on what terms they are asked.

Whoever sets them up is told which field is wrong. Keys are never shown: not in an error, not when a server is printed.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from penstock.documents.chat_model import Mode
from penstock.kernel.errors import Invalid

DEFAULT = "default"  # the name of the server that LLM_BASE_URL gives
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")  # it becomes a part of keys, of labels and of health pages
MOST_SERVERS = 50
MOST_LETTERS = 2000  # of an address, a key or a model's name
MOST_SHOWN = 20  # characters of a name that cannot be used
FIELDS = ("base_url", "api_key", "model", "input_price", "output_price")

FirstMode = Mode | Literal["auto"]


class BadModelServer(Invalid):
    """What is set for a server of models cannot be used."""

    code = "BAD_MODEL_SERVER"
    message = "The model server {name} cannot be used: {field} {reason}."
    message_zh = "模型服务 {name} 无法使用：{field} {reason}。"
    hint = "Look at LLM_BASE_URL, LLM_API_KEY and LLM_MODEL for the default server, and at LLM_SERVERS for the others."
    hint_zh = "默认服务请检查 LLM_BASE_URL、LLM_API_KEY 和 LLM_MODEL，其他服务请检查 LLM_SERVERS。"


@dataclass(frozen=True, kw_only=True)
class Server:
    """One server. Prices are for a million tokens; 0 on both sides means that nobody gave any."""

    name: str
    base_url: str
    api_key: str = field(default="", repr=False)
    model: str = ""
    input_price: float = 0.0
    output_price: float = 0.0

    def __post_init__(self) -> None:
        _check_name(self.name)
        for name in ("base_url", "api_key", "model"):
            _check_text(self.name, name, getattr(self, name))
        for name in ("input_price", "output_price"):
            _check_price(self.name, name, getattr(self, name))
        _check_address(self.name, self.base_url)

    @property
    def url(self) -> str:
        """Where questions go."""
        return f"{self.base_url.rstrip('/')}/chat/completions"

    def cost(self, prompt_tokens: int | None, completion_tokens: int | None) -> float | None:
        """What an answer cost; none where prices or tokens are not known."""
        if prompt_tokens is None or completion_tokens is None or not (self.input_price or self.output_price):
            return None
        return (prompt_tokens * self.input_price + completion_tokens * self.output_price) / 1_000_000


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How models are asked, whichever it is."""

    temperature: float = 0.3
    max_tokens: int = 0  # 0 leaves it to the server
    timeout: float = 120.0
    response_mode: FirstMode = "auto"
    concurrency: int = 4
    calls_per_second: float = 5.0


def read_servers(text: str) -> list[Server]:
    """The servers that LLM_SERVERS names: JSON, from a name to the fields of a server; none when it is empty."""
    if not text.strip():
        return []
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        # Without the cause: it may quote the text, and keys stand in it.
        raise BadModelServer(name="*", field="LLM_SERVERS", reason=f"is no JSON ({_place(error)})") from None
    if not isinstance(found, Mapping):
        raise BadModelServer(name="*", field="LLM_SERVERS", reason="has to be an object, from names to servers")
    if len(found) > MOST_SERVERS:
        raise BadModelServer(name="*", field="LLM_SERVERS", reason=f"names more than {MOST_SERVERS} servers")
    return [_read(name, fields) for name, fields in found.items()]


def _read(name: str, fields: Any) -> Server:
    _check_name(name)
    if name == DEFAULT:
        raise BadModelServer(name=name, field="its name", reason="stands for the server that LLM_BASE_URL gives")
    if not isinstance(fields, Mapping):
        raise BadModelServer(name=name, field="its value", reason=f"has to be an object with {', '.join(FIELDS)}")
    if unknown := sorted(set(fields) - set(FIELDS)):
        known = f"is not known; there are {', '.join(FIELDS)}"
        raise BadModelServer(name=name, field=_shown(unknown[0]), reason=known)
    if "base_url" not in fields:
        raise BadModelServer(name=name, field="base_url", reason="is missing")
    return Server(name=name, **fields)


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        reason = "may hold letters, digits, _, . and -, up to 40"
        raise BadModelServer(name=_shown(name), field="its name", reason=reason)


def _check_text(server: str, name: str, value: object) -> None:
    if not isinstance(value, str):
        raise BadModelServer(name=server, field=name, reason="has to be a text")
    if len(value) > MOST_LETTERS:
        raise BadModelServer(name=server, field=name, reason=f"is longer than {MOST_LETTERS} characters")
    if not value.isprintable() or (name == "api_key" and not value.isascii()) or value != value.strip():
        raise BadModelServer(name=server, field=name, reason="holds characters that it cannot hold")


def _check_price(server: str, name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:  # type: ignore[operator]  # a number, by the first half
        raise BadModelServer(name=server, field=name, reason="has to be a number from 0")


def _check_address(server: str, url: str) -> None:
    try:
        address = urlsplit(url)
        sound = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        raise BadModelServer(name=server, field="base_url", reason="is no address") from None  # it may quote a key
    if not sound:
        raise BadModelServer(name=server, field="base_url", reason="has to look like https://host/v1")
    if "@" in address.netloc:
        raise BadModelServer(name=server, field="base_url", reason="must not hold a user; a key belongs into api_key")
    if address.query or address.fragment:
        raise BadModelServer(name=server, field="base_url", reason="must not hold ? or #")


def _place(error: Exception) -> str:
    """Where the JSON breaks, in the reader's words, which quote nothing of it."""
    found = re.search(r"byte \d+", str(error))
    return found[0] if found else "it cannot be read"


def _shown(name: str) -> str:
    """The beginning of a name: enough to find it, and too little if a key stands in the wrong place."""
    return repr(name if len(name) <= MOST_SHOWN else f"{name[:3]}…")
