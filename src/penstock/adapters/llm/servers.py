"""The configured model servers and call options.

Errors name the invalid setting. API keys are never shown: not in an error and not in a repr.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from penstock.documents.chat_model import ResponseMode
from penstock.kernel.errors import Invalid

DEFAULT = "default"  # the name of the server at LLM_BASE_URL
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")  # part of keys, metric labels and health pages
MAX_SERVERS = 50
MAX_LETTERS = 2000  # of a URL, a key or a model name
MAX_SHOWN = 20  # characters of an invalid name
FIELDS = ("base_url", "api_key", "model", "input_price", "output_price")

FirstMode = ResponseMode | Literal["auto"]


class BadModelServer(Invalid):
    """The settings of a model server are invalid."""

    code = "BAD_MODEL_SERVER"
    message = "Invalid settings of model server {name}: {field} {reason}."
    message_zh = "模型服务 {name} 的设置无效：{field} {reason}。"
    hint = "Check LLM_BASE_URL, LLM_API_KEY and LLM_MODEL for the default server, LLM_SERVERS for the others."
    hint_zh = "默认服务请检查 LLM_BASE_URL、LLM_API_KEY 和 LLM_MODEL，其他服务请检查 LLM_SERVERS。"


@dataclass(frozen=True, kw_only=True)
class ModelServer:
    """One server. Prices are per million tokens; 0 for both means unknown."""

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
        """The chat completions URL."""
        return f"{self.base_url.rstrip('/')}/chat/completions"

    def cost(self, prompt_tokens: int | None, completion_tokens: int | None) -> float | None:
        """The cost of an answer; None if prices or tokens are unknown."""
        if prompt_tokens is None or completion_tokens is None or not (self.input_price or self.output_price):
            return None
        return (prompt_tokens * self.input_price + completion_tokens * self.output_price) / 1_000_000


@dataclass(frozen=True, kw_only=True)
class ChatConfig:
    """Call options that apply to every model."""

    temperature: float = 0.3
    max_tokens: int = 0  # 0: the server's default
    timeout: float = 120.0
    response_mode: FirstMode = "auto"
    concurrency: int = 4
    calls_per_second: float = 5.0


def read_servers(text: str) -> list[ModelServer]:
    """Parse LLM_SERVERS: JSON, from a name to the fields of a server; empty for none."""
    if not text.strip():
        return []
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        # Without the cause: it may quote the text, which contains keys.
        raise BadModelServer(name="*", field="LLM_SERVERS", reason=f"is not JSON ({_error_position(error)})") from None
    if not isinstance(found, Mapping):
        raise BadModelServer(name="*", field="LLM_SERVERS", reason="must be an object, from names to servers")
    if len(found) > MAX_SERVERS:
        raise BadModelServer(name="*", field="LLM_SERVERS", reason=f"has more than {MAX_SERVERS} servers")
    return [_read(name, fields) for name, fields in found.items()]


def _read(name: str, fields: Any) -> ModelServer:
    _check_name(name)
    if name == DEFAULT:
        raise BadModelServer(name=name, field="its name", reason="is reserved for the server at LLM_BASE_URL")
    if not isinstance(fields, Mapping):
        raise BadModelServer(name=name, field="its value", reason=f"must be an object with {', '.join(FIELDS)}")
    if unknown := sorted(set(fields) - set(FIELDS)):
        known = f"is unknown; expected one of {', '.join(FIELDS)}"
        raise BadModelServer(name=name, field=_shortened(unknown[0]), reason=known)
    if "base_url" not in fields:
        raise BadModelServer(name=name, field="base_url", reason="is missing")
    return ModelServer(name=name, **fields)


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        reason = "may contain letters, digits, _, . and -, up to 40"
        raise BadModelServer(name=_shortened(name), field="its name", reason=reason)


def _check_text(server: str, name: str, value: object) -> None:
    if not isinstance(value, str):
        raise BadModelServer(name=server, field=name, reason="must be a string")
    if len(value) > MAX_LETTERS:
        raise BadModelServer(name=server, field=name, reason=f"is longer than {MAX_LETTERS} characters")
    if not value.isprintable() or (name == "api_key" and not value.isascii()) or value != value.strip():
        raise BadModelServer(name=server, field=name, reason="contains invalid characters")


def _check_price(server: str, name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:  # type: ignore[operator]  # a number, by the first half
        raise BadModelServer(name=server, field=name, reason="must be a non-negative number")


def _check_address(server: str, url: str) -> None:
    try:
        address = urlsplit(url)
        sound = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        raise BadModelServer(
            name=server, field="base_url", reason="is not a URL"
        ) from None  # the cause may quote a key
    if not sound:
        raise BadModelServer(name=server, field="base_url", reason="must look like https://host/v1")
    if "@" in address.netloc:
        raise BadModelServer(name=server, field="base_url", reason="must not contain a user; put the key into api_key")
    if address.query or address.fragment:
        raise BadModelServer(name=server, field="base_url", reason="must not contain ? or #")


def _error_position(error: Exception) -> str:
    """Where the JSON is invalid, without quoting it."""
    found = re.search(r"byte \d+", str(error))
    return found[0] if found else "cannot be parsed"


def _shortened(name: str) -> str:
    """The beginning of a name: enough to find it, too little to reveal a misplaced key."""
    return repr(name if len(name) <= MAX_SHOWN else f"{name[:3]}…")
