"""What the process tells: lines of text for people, or of JSON for machines, one handler for everything.

`set_up_logs` is called once, by the command line. Whatever a line is made of, the message, its values, extra fields or
an error's trace, goes through `redact`, loses its control characters (so nobody can write a line of ours by what they
send us) and is cut to a length. A line that cannot be made is replaced by one that says so: logging never raises.

`request_id` is the request that this line belongs to, wherever it is written.
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

from penstock.kernel.redact import BLOT, is_secret_name, redact

MOST_CHARACTERS = 4000  # of a message
UNPLAIN = re.compile(r"[\s\"\\=]")  # what would let a value pass for several
MOST_TRACE = 12_000  # of a trace: its beginning and its end are kept
MOST_FIELD = 500
MOST_FIELDS = 20

request_id: ContextVar[str] = ContextVar("request_id", default="")
trace_id: ContextVar[str] = ContextVar("trace_id", default="")

NO_RECORD = vars(logging.LogRecord("penstock.access", logging.INFO, "", 0, "", (), None))
STANDARD = frozenset(NO_RECORD) | {"message", "asctime", "taskName"}
# Escaped, not dropped: line breaks, terminal codes, what turns text around, what other programs take for a break.
_HIDDEN = [*range(0x20), *range(0x7F, 0xA0), 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F)]
_HIDDEN += [*range(0x2060, 0x206A), 0xFEFF]
_ESCAPES = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _HIDDEN}
VISIBLE = _ESCAPES | {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
VISIBLE_LINES = {code: shown for code, shown in VISIBLE.items() if code not in (ord("\n"), ord("\t"))}
QUIET = {"alembic": logging.WARNING, "aiohttp.access": logging.WARNING, "asyncio": logging.WARNING}


def set_up_logs(*, style: str, level: str, stream: TextIO | None = None) -> logging.Handler:
    """Let everything be told in one style: `text` or `json`. Called again, it replaces what it set up before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else TextLines())
    handler.set_name("penstock")
    root = logging.getLogger()
    for known in [known for known in root.handlers if known.get_name() == "penstock"]:
        root.removeHandler(known)
    root.addHandler(handler)
    root.setLevel(level)
    # What every record would gather and no line of ours shows.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    for name, least in QUIET.items():
        logging.getLogger(name).setLevel(max(least, root.level))
    return handler


class RequestLine(logging.LogRecord):
    """A line about a request that is over. There is one for every request, so it gathers only what is shown."""

    fields: dict[str, Any]  # numbers, and text that is clean
    request_id: str

    def __init__(self, words: str, fields: dict[str, Any], *, request_id: str, at: float) -> None:
        shown = {"msg": words, "fields": fields, "request_id": request_id, "created": at, "msecs": at % 1 * 1000}
        self.__dict__ = NO_RECORD | shown


class TextLines(logging.Formatter):
    """`2026-01-01T00:00:00.000Z INFO penstock.kernel.workers: a message key=value [request id]`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the lines of a trace below it, set in so that none of them can pass for a line of its own."""
        try:
            fields = "".join([f" {name}={_text(value)}" for name, value in _fields(record).items()])
            of_request = f" [{mine}]" if (mine := _request_id(record)) else ""
            line = f"{_time(record)} {record.levelname} {record.name}: {_message(record)}{fields}{of_request}"
            trace = _trace(record)
        except Exception as error:  # noqa: BLE001  (whatever a value does when it is shown, the work goes on)
            return _unmade(record, error)
        return line + "".join(f"\n  {part}" for part in trace.splitlines()) if trace else line


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, request_id, extra fields, and `error` with a trace."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        try:
            told: dict[str, Any] = {
                "time": _time(record),
                "level": record.levelname,
                "logger": record.name,
                "message": _message(record),
            }
            belongs = {"request_id": _request_id(record), "trace_id": trace_id.get()}
            told |= {name: value for name, value in belongs.items() if value}
            told |= _fields(record)
            if trace := _trace(record):
                told["error"] = trace
            return msgspec.json.encode(told).decode()
        except Exception as error:  # noqa: BLE001  (whatever a value does when it is shown, the work goes on)
            return msgspec.json.encode({"level": "ERROR", "message": _unmade(record, error)}).decode()


def clean(text: str, most: int = MOST_CHARACTERS) -> str:
    """Text as it may stand in a log: cut, without secrets, on one line."""
    cut = text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
    if cut.isprintable():
        return redact(cut)
    return redact(cut.encode(errors="backslashreplace").decode()).translate(VISIBLE)


@lru_cache(maxsize=2)  # lines come in the order of time: this second's and the one before
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _time(record: logging.LogRecord) -> str:
    return f"{_second(int(record.created))}.{int(record.msecs):03d}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001  (a wrong placeholder in a log call must not lose the line)
        text = f"{record.msg} (its values do not fit)"
    return clean(text)


def _request_id(record: logging.LogRecord) -> str:
    return record.request_id if isinstance(record, RequestLine) else request_id.get()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller gave as `extra`."""
    if isinstance(record, RequestLine):
        return record.fields
    extra = [name for name in vars(record) if name not in STANDARD]
    return {name: BLOT if is_secret_name(name) else _plain(getattr(record, name)) for name in extra[:MOST_FIELDS]}


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    return clean(str(value), MOST_FIELD)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) and UNPLAIN.search(value) else str(value)


def _trace(record: logging.LogRecord) -> str:
    if not record.exc_info:
        return ""
    told = logging.Formatter().formatException(record.exc_info)
    told = redact(told.encode(errors="backslashreplace").decode())  # before it is cut: half a secret looks like none
    if len(told) > MOST_TRACE:
        told = f"{told[: MOST_TRACE // 2]}\n…\n{told[-MOST_TRACE // 2 :]}"
    return told.translate(VISIBLE_LINES)


def _unmade(record: logging.LogRecord, error: Exception) -> str:
    return f"a line of {record.name} ({record.pathname}:{record.lineno}) could not be told: {type(error).__name__}"
