"""The cloud's error codes, and what each of them means here.

A failed call has a code that is not 0; a failed job has state `failed` in a call that went well, and may have the same
codes. Both come here: what a code means does not depend on where it stands.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from penstock.adapters.mineru.errors import (
    MineruAway,
    MineruBusy,
    MineruFailed,
    MineruKeyRefused,
    MineruLost,
    MineruRefused,
    MineruUrlUnread,
    MineruUsedUp,
)
from penstock.documents.errors import DocumentEmpty, DocumentKindUnknown, DocumentTooLarge, DocumentUnreadable
from penstock.kernel.errors import PenstockError

FULL_SECONDS = 300.0  # for a submit queue to empty
DAY = timedelta(days=1)
VENDOR_ZONE = timezone(timedelta(hours=8))  # the service counts its days in China
IN_WORDS = re.compile(r"(?<![\w-])(-(?:500|\d{5})|A02\d\d)(?!\d)")


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A code and its words, about this document and this job, at this time."""

    code: str
    words: str
    filename: str
    job: str
    now: datetime

    @property
    def reason(self) -> str:
        """Both, for people."""
        return f"{self.words} ({self.code})" if self.code else self.words


def _key(trouble: Trouble) -> PenstockError:
    return MineruKeyRefused(reason=trouble.reason)


def _refused(trouble: Trouble) -> PenstockError:
    return MineruRefused(filename=trouble.filename, reason=trouble.reason)


def _away(trouble: Trouble) -> PenstockError:
    return MineruAway(reason=trouble.reason)


def _failed(trouble: Trouble) -> PenstockError:
    return MineruFailed(filename=trouble.filename, reason=trouble.reason)


def _lost(trouble: Trouble) -> PenstockError:
    return MineruLost(job=trouble.job)


def _full(trouble: Trouble) -> PenstockError:
    return MineruBusy(wait_seconds=FULL_SECONDS, reason=trouble.reason)


def _tomorrow(trouble: Trouble) -> PenstockError:
    there = trouble.now.astimezone(VENDOR_ZONE)
    midnight = there.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
    return MineruUsedUp(wait_seconds=(midnight - there).total_seconds(), reason=trouble.reason)


def _unread(trouble: Trouble) -> PenstockError:
    return MineruUrlUnread(filename=trouble.filename, reason=trouble.reason)


def _unreadable(trouble: Trouble) -> PenstockError:
    return DocumentUnreadable(filename=trouble.filename, kind="a document by MinerU", reason=trouble.reason)


def _too_large(trouble: Trouble) -> PenstockError:
    return DocumentTooLarge(filename=trouble.filename, reason=f"MinerU says {trouble.reason}")


def _kind(trouble: Trouble) -> PenstockError:
    return DocumentKindUnknown(filename=trouble.filename, seen=trouble.reason)


def _empty(trouble: Trouble) -> PenstockError:
    return DocumentEmpty(filename=trouble.filename)


MEANINGS: Mapping[str, Callable[[Trouble], PenstockError]] = {
    "A0202": _key,
    "A0211": _key,
    "-500": _refused,
    "-10001": _away,
    "-10002": _refused,
    "-60001": _away,
    "-60002": _kind,
    "-60003": _unreadable,
    "-60004": _empty,
    "-60005": _too_large,
    "-60006": _too_large,
    "-60007": _away,
    "-60008": _unread,
    "-60009": _full,
    "-60010": _failed,
    "-60011": _lost,
    "-60012": _lost,
    "-60013": _refused,
    "-60015": _unreadable,
    "-60016": _failed,
    "-60017": _refused,
    "-60018": _tomorrow,
    "-60019": _tomorrow,
    "-60020": _failed,
    "-60021": _failed,
    "-60022": _failed,
}


def of_call(trouble: Trouble) -> PenstockError:
    """What a failed call means. A code that nobody knows may pass: new ones are made without notice."""
    return MEANINGS.get(trouble.code, _away)(trouble)


def of_job(trouble: Trouble) -> PenstockError:
    """What a failed job means. Its code may stand in its words only, or nowhere."""
    meaning = MEANINGS.get(trouble.code)
    if meaning is None and (found := IN_WORDS.search(trouble.words)):
        meaning = MEANINGS.get(found[1])
    return (meaning or _failed)(trouble)
