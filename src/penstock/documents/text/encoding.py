"""Which letters a text is written in.

A mark at its beginning decides; else UTF-8 when it is that; else GB18030 when the bytes make sense as Chinese; else
cp1252, which reads anything. A NUL or many control characters mean that it is no text at all.
"""

import codecs
import re

SAMPLE_BYTES = 64 * 1024  # enough to tell, and little enough to look at more than once
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROLS = bytes(
    each for each in range(32) if each not in b"\t\n\r\f\x1b"
)  # with those that plain text may have left out

DECLARED = re.compile(
    r"utf-8|us-ascii|gb2312|gbk|gb18030|big5|shift_jis|euc-(?:jp|kr)|koi8-[ru]|iso-2022-jp|iso-8859-\d{1,2}|windows-125\d"
)


def codec_of(sample: bytes) -> str | None:
    """The name of the codec that reads a text which begins like this; None when it is not a text."""
    for mark, name in MARKS:
        if sample.startswith(mark):
            return name if _decodes(sample, name) else None
    if b"\0" in sample or _controls(sample) * 20 > len(sample):
        return None
    if _decodes(sample, "utf-8"):
        return "utf-8"
    return "gb18030" if _is_chinese(sample) else "cp1252"


def declared_codec(name: str | None) -> str | None:
    """The codec that a file names, when it is one for text. Chinese ones are read by the one that holds them all."""
    known = DECLARED.fullmatch((name or "").strip().lower())
    if known is None:
        return None
    return "gb18030" if known[0].startswith("gb") else known[0]


def decoded(text: bytes, codec: str) -> str:
    """The text; what its codec cannot read shows as a question mark of its own, and no letter is lost around it."""
    return text.decode(codec, errors="replace")


def _decodes(sample: bytes, name: str) -> bool:
    """Whether it is clean, but for a letter that the end of the sample has cut."""
    try:
        codecs.getincrementaldecoder(name)().decode(sample, final=False)
    except UnicodeDecodeError:
        return False
    return True


def _controls(sample: bytes) -> int:
    return len(sample) - len(sample.translate(None, CONTROLS))


def _is_chinese(sample: bytes) -> bool:
    """GB18030 takes nearly all pairs of high bytes, so that it decodes says little: the letters must be common ones."""
    if not _decodes(sample, "gb18030"):
        return False
    letters = [each for each in codecs.getincrementaldecoder("gb18030")().decode(sample) if each > "\x7f"]
    return sum(map(_is_common, letters)) * 10 >= len(letters) * 9


def _is_common(letter: str) -> bool:
    """Whether it is in the first plane of Han letters as GB2312 knows them, or a mark that goes with them."""
    try:
        pair = letter.encode("gb2312")
    except UnicodeEncodeError:
        return False
    return len(pair) == 2
