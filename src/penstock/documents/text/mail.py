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
SHOWN_HEADERS = ("From", "To", "Cc", "Date", "Subject")


def read_mail(file: BinaryIO, _resume: str) -> Iterator[Block]:
    """Yield the headers, the text and the list of attachments."""
    source = file.read(MAX_BYTES + 1)
    if len(source) > MAX_BYTES:
        raise too_large(f"it has more than {MAX_BYTES} bytes")
    try:
        message = BytesParser(policy=policy.compat32).parsebytes(source)
    except RecursionError:
        raise unreadable("its parts are nested too deeply") from None
    if not any(name in message for name in SHOWN_HEADERS):
        raise unreadable("it has no mail headers")
    yield from _headers(message)
    attachments: list[Message] = []
    yield from _body(message, attachments, depth=0)
    if attachments:
        yield Heading(text="Attachments", level=2)
        yield from (ListItem(text=_describe_attachment(each)) for each in attachments)


def _headers(message: Message) -> Iterator[Block]:
    subject = _header(message, "Subject")
    if subject:
        yield Heading(text=subject, level=1)
    lines = ((name, _header(message, name)) for name in SHOWN_HEADERS)
    yield TextBlock(text="\n".join(f"{name}: {text}" for name, text in lines if text))


def _header(message: Message, name: str) -> str:
    return _decode_header(str(message.get(name, "")))


def _decode_header(text: str) -> str:
    """A decoded header on one line."""
    text = text[:MAX_HEADER_CHARACTERS]
    try:
        shown = str(make_header(decode_header(text)))
    except (HeaderParseError, LookupError, UnicodeError, ValueError):
        shown = text
    return " ".join(shown.encode(errors="replace").decode().split())


def _body(part: Message, attachments: list[Message], depth: int) -> Iterator[Block]:
    if depth > MAX_DEPTH:
        raise unreadable(f"its parts are nested deeper than {MAX_DEPTH} levels")
    if len(attachments) > MAX_PARTS:
        raise too_large(f"it has more than {MAX_PARTS} attachments")
    kind = part.get_content_type()
    if part.is_multipart() and kind.startswith("multipart/"):
        for each in _selected_parts(part, kind):
            yield from _body(each, attachments, depth + 1)
    elif part.get_content_disposition() == "attachment" or part.get_filename() or not kind.startswith("text/"):
        attachments.append(part)
    elif kind == "text/html":
        yield from html_blocks(_text(part))
    else:
        yield TextBlock(text=_text(part))


def _selected_parts(part: Message, kind: str) -> list[Message]:
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


def _describe_attachment(part: Message) -> str:
    name = _decode_header(part.get_filename() or "") or part.get_content_type()
    return f"{name} ({_size(part)} bytes)"


def _size(part: Message) -> int:
    payload = part.get_payload(decode=True)
    if isinstance(payload, bytes):
        return len(payload)
    return sum(len(bytes(each)) for each in part.get_payload() if isinstance(each, Message))
