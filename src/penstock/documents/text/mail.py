"""Mail messages: headers, text, and the names of attachments.

The plain text part is preferred over HTML. Attachments are listed with their size, not opened: each is a document of
its own. Headers are decoded here, because the address parser of the standard library fails on malformed ones.
"""

from collections.abc import Iterator
from email import policy
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesParser
from typing import BinaryIO

from penstock.documents.blocks import Block, Heading, ListItem, TextBlock
from penstock.documents.rejections import too_large, unreadable
from penstock.documents.text.encoding import declared_encoding, decode_text, detect_encoding
from penstock.documents.text.html import html_blocks

MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 30
MAX_PARTS = 1000
MAX_HEADER_CHARACTERS = 10_000
SHOWN = ("From", "To", "Cc", "Date", "Subject")


def read_mail(file: BinaryIO, _resume: str) -> Iterator[Block]:
    """Yield the headers, the text and the list of attachments."""
    source = file.read(MAX_BYTES + 1)
    if len(source) > MAX_BYTES:
        raise too_large(f"a mail of more than {MAX_BYTES} bytes")
    try:
        message = BytesParser(policy=policy.compat32).parsebytes(source)
    except RecursionError:
        raise unreadable("its parts nest too deeply") from None
    if not any(name in message for name in SHOWN):
        raise unreadable("it has none of the headers of a mail")
    yield from _headers(message)
    attached: list[Message] = []
    yield from _body(message, attached, depth=0)
    if attached:
        yield Heading(text="Attachments", level=2)
        yield from (ListItem(text=_described(each)) for each in attached)


def _headers(message: Message) -> Iterator[Block]:
    subject = _header(message, "Subject")
    if subject:
        yield Heading(text=subject, level=1)
    lines = ((name, _header(message, name)) for name in SHOWN)
    yield TextBlock(text="\n".join(f"{name}: {written}" for name, written in lines if written))


def _header(message: Message, name: str) -> str:
    return _readable(str(message.get(name, "")))


def _readable(written: str) -> str:
    """A decoded header on one line."""
    written = written[:MAX_HEADER_CHARACTERS]
    try:
        shown = str(make_header(decode_header(written)))
    except (HeaderParseError, LookupError, UnicodeError, ValueError):
        shown = written
    return " ".join(shown.encode(errors="replace").decode().split())


def _body(part: Message, attached: list[Message], depth: int) -> Iterator[Block]:
    if depth > MAX_DEPTH:
        raise unreadable(f"its parts nest deeper than {MAX_DEPTH} levels")
    if len(attached) > MAX_PARTS:
        raise too_large(f"it has more than {MAX_PARTS} attachments")
    kind = part.get_content_type()
    if part.is_multipart() and kind.startswith("multipart/"):
        for each in _chosen(part, kind):
            yield from _body(each, attached, depth + 1)
    elif part.get_content_disposition() == "attachment" or part.get_filename() or not kind.startswith("text/"):
        attached.append(part)
    elif kind == "text/html":
        yield from html_blocks(_text(part))
    else:
        yield TextBlock(text=_text(part))


def _chosen(part: Message, kind: str) -> list[Message]:
    """All parts; of a multipart/alternative, the plain text part or else the last."""
    parts = [each for each in part.get_payload() if isinstance(each, Message)]
    if kind != "multipart/alternative":
        return parts
    return next(([each] for each in parts if each.get_content_type() == "text/plain"), parts[-1:])


def _text(part: Message) -> str:
    """Decode a text part. The declared encoding may be wrong, so it is detected if unknown."""
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    codec = declared_encoding(part.get_content_charset()) or detect_encoding(payload) or "cp1252"
    return decode_text(payload, codec).replace("\r\n", "\n").replace("\0", "").strip()


def _described(part: Message) -> str:
    name = _readable(part.get_filename() or "") or part.get_content_type()
    return f"{name} ({_size(part)} bytes)"


def _size(part: Message) -> int:
    payload = part.get_payload(decode=True)
    if isinstance(payload, bytes):
        return len(payload)
    return sum(len(bytes(each)) for each in part.get_payload() if isinstance(each, Message))
