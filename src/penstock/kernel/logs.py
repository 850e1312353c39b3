"""Logging: one handler that writes text lines for people or JSON lines for machines to standard error.

The command line calls `set_up_logs` once. Every part of a line (message, values, extra fields, traceback) is redacted,
stripped of control characters (so that input cannot forge log lines) and truncated. If a line cannot be formatted, a
line that says so is written instead: logging never raises.

`request_id` is the id of the request that a line belongs to.
"""

import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TextIO

import msgspec

from penstock.kernel.redact import REDACTED, is_secret_name, redact

MAX_MESSAGE = 4000  # characters
NEEDS_QUOTES = re.compile(r"[\s\"\\=]")  # characters that would make one value look like several
MAX_TRACEBACK = 12_000  # characters; the beginning and the end are kept
MAX_FIELD = 500
MAX_FIELDS = 20

request_id: ContextVar[str] = ContextVar("request_id", default="")
trace_id: ContextVar[str] = ContextVar("trace_id", default="")

RECORD_DEFAULTS = vars(logging.LogRecord("penstock.access", logging.INFO, "", 0, "", (), None))
STANDARD = frozenset(RECORD_DEFAULTS) | {"message", "asctime", "taskName"}
# Escaped, not dropped: line breaks, terminal codes, text direction marks, characters some programs take for a break.
_HIDDEN = [*range(0x20), *range(0x7F, 0xA0), 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F)]
_HIDDEN += [*range(0x2060, 0x206A), 0xFEFF]
_ESCAPES = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _HIDDEN}
VISIBLE = _ESCAPES | {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
VISIBLE_LINES = {code: shown for code, shown in VISIBLE.items() if code not in (ord("\n"), ord("\t"))}
MIN_LEVELS = {"alembic": logging.WARNING, "aiohttp.access": logging.WARNING, "asyncio": logging.WARNING}


def set_up_logs(*, style: str, level: str, stream: TextIO | None = None) -> logging.Handler:
    """Log everything from `level` on in one style, `text` or `json` (PENSTOCK_LOG_FORMAT).

    A second call replaces the handler of the first.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else TextLines())
    handler.set_name("penstock")
    root = logging.getLogger()
    for known in [known for known in root.handlers if known.get_name() == "penstock"]:
        root.removeHandler(known)
    root.addHandler(handler)
    root.setLevel(level)
    # Collected for every record and shown in none of our lines.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    for name, minimum in MIN_LEVELS.items():
        logging.getLogger(name).setLevel(max(minimum, root.level))
    return handler


class RequestLine(logging.LogRecord):
    """The access log record of a request. One per request, so it collects only what is shown."""

    fields: dict[str, Any]  # numbers and clean text
    request_id: str

    def __init__(self, message: str, fields: dict[str, Any], *, request_id: str, at: float) -> None:
        shown = {"msg": message, "fields": fields, "request_id": request_id, "created": at, "msecs": at % 1 * 1000}
        self.__dict__ = RECORD_DEFAULTS | shown


class TextLines(logging.Formatter):
    """`2026-01-01T00:00:00.000Z INFO penstock.kernel.workers: a message key=value [request id]`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, followed by the indented lines of a traceback, so that none of them looks like a log line."""
        try:
            fields = "".join([f" {name}={_text(value)}" for name, value in _fields(record).items()])
            request_suffix = f" [{mine}]" if (mine := _request_id(record)) else ""
            line = f"{_time(record)} {record.levelname} {record.name}: {_message(record)}{fields}{request_suffix}"
            traceback = _traceback(record)
        except Exception as error:  # noqa: BLE001  (a value that cannot be formatted must not break the caller)
            return _fallback_line(record, error)
        return line + "".join(f"\n  {part}" for part in traceback.splitlines()) if traceback else line


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, request_id, extra fields, a traceback as `error`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        try:
            line: dict[str, Any] = {
                "time": _time(record),
                "level": record.levelname,
                "logger": record.name,
                "message": _message(record),
            }
            context = {"request_id": _request_id(record), "trace_id": trace_id.get()}
            line |= {name: value for name, value in context.items() if value}
            line |= _fields(record)
            if traceback := _traceback(record):
                line["error"] = traceback
            return msgspec.json.encode(line).decode()
        except Exception as error:  # noqa: BLE001  (a value that cannot be formatted must not break the caller)
            return msgspec.json.encode({"level": "ERROR", "message": _fallback_line(record, error)}).decode()


def clean(text: str, most: int = MAX_MESSAGE) -> str:
    """Text for a log line: truncated, redacted, on one line."""
    cut = text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
    if cut.isprintable():
        return redact(cut)
    return redact(cut.encode(errors="backslashreplace").decode()).translate(VISIBLE)


@lru_cache(maxsize=2)  # lines are written in time order: the current second and the one before
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _time(record: logging.LogRecord) -> str:
    return f"{_second(int(record.created))}.{int(record.msecs):03d}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001  (a wrong placeholder in a log call must not lose the line)
        text = f"{record.msg} (its arguments do not match)"
    return clean(text)


def _request_id(record: logging.LogRecord) -> str:
    return record.request_id if isinstance(record, RequestLine) else request_id.get()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields passed as `extra`."""
    if isinstance(record, RequestLine):
        return record.fields
    extra = [name for name in vars(record) if name not in STANDARD]
    return {name: REDACTED if is_secret_name(name) else _plain(getattr(record, name)) for name in extra[:MAX_FIELDS]}


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    return clean(str(value), MAX_FIELD)


def _text(value: object) -> str:
    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, str) and NEEDS_QUOTES.search(value) else str(value)
    )


def _traceback(record: logging.LogRecord) -> str:
    if not record.exc_info:
        return ""
    text = logging.Formatter().formatException(record.exc_info)
    text = redact(text.encode(errors="backslashreplace").decode())  # before truncation: half a secret is not recognised
    if len(text) > MAX_TRACEBACK:
        text = f"{text[: MAX_TRACEBACK // 2]}\n…\n{text[-MAX_TRACEBACK // 2 :]}"
    return text.translate(VISIBLE_LINES)


def _fallback_line(record: logging.LogRecord, error: Exception) -> str:
    return f"cannot format a log line of {record.name} ({record.pathname}:{record.lineno}): {type(error).__name__}"
