"""Detects the character encoding of a text.

A byte order mark decides; otherwise UTF-8 if it decodes; otherwise GB18030 if the characters are common Chinese ones;
otherwise cp1252, which decodes anything. A NUL or many control characters mean binary data.
"""

import codecs
import re

SAMPLE_BYTES = 64 * 1024  # enough to decide, and cheap to scan more than once
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROLS = bytes(
    each for each in range(32) if each not in b"\t\n\r\f\x1b"
)  # control characters that plain text does not contain

DECLARED = re.compile(
    r"utf-8|us-ascii|gb2312|gbk|gb18030|big5|shift_jis|euc-(?:jp|kr)|koi8-[ru]|iso-2022-jp|iso-8859-\d{1,2}|windows-125\d"
)


def detect_encoding(sample: bytes) -> str | None:
    """The codec for a text that starts with this sample; None for binary data."""
    for mark, name in MARKS:
        if sample.startswith(mark):
            return name if _decodes(sample, name) else None
    if b"\0" in sample or _controls(sample) * 20 > len(sample):
        return None
    if _decodes(sample, "utf-8"):
        return "utf-8"
    return "gb18030" if _is_chinese(sample) else "cp1252"


def declared_encoding(name: str | None) -> str | None:
    """The codec that a file declares, if it is a known text encoding. GB18030 covers every Chinese one."""
    known = DECLARED.fullmatch((name or "").strip().lower())
    if known is None:
        return None
    return "gb18030" if known[0].startswith("gb") else known[0]


def decode_text(text: bytes, codec: str) -> str:
    """Decode a text. Invalid bytes become U+FFFD, and the characters around them are kept."""
    return text.decode(codec, errors="replace")


def _decodes(sample: bytes, name: str) -> bool:
    """Whether it decodes, apart from a character truncated at the end of the sample."""
    try:
        codecs.getincrementaldecoder(name)().decode(sample, final=False)
    except UnicodeDecodeError:
        return False
    return True


def _controls(sample: bytes) -> int:
    return len(sample) - len(sample.translate(None, CONTROLS))


def _is_chinese(sample: bytes) -> bool:
    """GB18030 decodes nearly all pairs of high bytes, so most characters must be common ones as well."""
    if not _decodes(sample, "gb18030"):
        return False
    letters = "".join(each for each in codecs.getincrementaldecoder("gb18030")().decode(sample) if each > "\x7f")
    common = len(letters.encode("gb2312", errors="ignore")) // 2  # GB2312 has the common characters, in two bytes each
    return common * 10 >= len(letters) * 9
