"""Names of documents as parts of keys. People name files as they like; stores do not take every name."""

import re
import unicodedata

from penstock.kernel.blobs import why_bad_key

MOST_NAME_BYTES = 160  # of the 200 that a segment may have: what is made of it is named by longer names
MOST_SUFFIX_BYTES = 20
NAMELESS = "document"


def task_name(filename: str) -> str:
    """A name as it was sent, where the result can be stored under it; else one that stores take."""
    composed = unicodedata.normalize("NFC", filename)  # some systems send accents beside their letters
    return composed if why_bad_key(f"{composed}.json") is None and "/" not in composed else safe_name(composed)


def safe_name(filename: str) -> str:
    """A name as a part of a key: without folders, and without what some store could misread."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", filename))[-1]
    name = "".join(one if one.isprintable() else "_" for one in last).strip(" ").rstrip("~").strip(" ")
    stem, dot, suffix = name.rpartition(".")
    if not dot or len(suffix.encode()) > MOST_SUFFIX_BYTES:
        stem, suffix = name, ""
    end = f".{suffix}" if suffix else ""
    cut = stem.encode()[: MOST_NAME_BYTES - len(end.encode())].decode(errors="ignore").strip(" ")
    made = f"{cut or NAMELESS}{end}"
    return made if why_bad_key(made) is None else NAMELESS
