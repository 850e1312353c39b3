"""Mails: who wrote to whom and when, the text, and the names of what is attached.

The text of a mail is preferred over its web page. Attachments are named with their size, not opened: each of them is a
document of its own. Headers are decoded here, since the parser's own way with addresses fails on broken ones.
"""

from collections.abc import Iterator
from email import policy
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesParser
from typing import BinaryIO

from penstock.documents.blocks import Block, Heading, Item, Text
from penstock.documents.rejections import too_large, unreadable
from penstock.documents.text.encoding import codec_of, declared_codec, decoded
from penstock.documents.text.html import blocks_of

MOST_BYTES = 64 * 1024 * 1024
MOST_DEPTH = 30
MOST_PARTS = 1000
MOST_HEADER_CHARACTERS = 10_000
SHOWN = ("From", "To", "Cc", "Date", "Subject")


def read_mail(file: BinaryIO, _resume: str) -> Iterator[Block]:
    """The headers, the text and the list of attachments."""
    source = file.read(MOST_BYTES + 1)
    if len(source) > MOST_BYTES:
        raise too_large(f"a mail of more than {MOST_BYTES} bytes")
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
        yield from (Item(text=_described(each)) for each in attached)


def _headers(message: Message) -> Iterator[Block]:
    subject = _header(message, "Subject")
    if subject:
        yield Heading(text=subject, level=1)
    lines = ((name, _header(message, name)) for name in SHOWN)
    yield Text(text="\n".join(f"{name}: {written}" for name, written in lines if written))


def _header(message: Message, name: str) -> str:
    return _readable(str(message.get(name, "")))


def _readable(written: str) -> str:
    """A header in one line, whatever it was packed in."""
    written = written[:MOST_HEADER_CHARACTERS]
    try:
        shown = str(make_header(decode_header(written)))
    except (HeaderParseError, LookupError, UnicodeError, ValueError):
        shown = written
    return " ".join(shown.encode(errors="replace").decode().split())


def _body(part: Message, attached: list[Message], depth: int) -> Iterator[Block]:
    if depth > MOST_DEPTH:
        raise unreadable(f"its parts nest deeper than {MOST_DEPTH} levels")
    if len(attached) > MOST_PARTS:
        raise too_large(f"it has more than {MOST_PARTS} attachments")
    kind = part.get_content_type()
    if part.is_multipart() and kind.startswith("multipart/"):
        for each in _chosen(part, kind):
            yield from _body(each, attached, depth + 1)
    elif part.get_content_disposition() == "attachment" or part.get_filename() or not kind.startswith("text/"):
        attached.append(part)
    elif kind == "text/html":
        yield from blocks_of(_text(part))
    else:
        yield Text(text=_text(part))


def _chosen(part: Message, kind: str) -> list[Message]:
    """All parts; of those that say the same in several ways, the plain one, else the richest."""
    parts = [each for each in part.get_payload() if isinstance(each, Message)]
    if kind != "multipart/alternative":
        return parts
    return next(([each] for each in parts if each.get_content_type() == "text/plain"), parts[-1:])


def _text(part: Message) -> str:
    """A text part in its letters; a mail may name them wrongly, and then they are guessed."""
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    codec = declared_codec(part.get_content_charset()) or codec_of(payload) or "cp1252"
    return decoded(payload, codec).replace("\r\n", "\n").replace("\0", "").strip()


def _described(part: Message) -> str:
    name = _readable(part.get_filename() or "") or part.get_content_type()
    return f"{name} ({_size(part)} bytes)"


def _size(part: Message) -> int:
    payload = part.get_payload(decode=True)
    if isinstance(payload, bytes):
        return len(payload)
    return sum(len(bytes(each)) for each in part.get_payload() if isinstance(each, Message))
