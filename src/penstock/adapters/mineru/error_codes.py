"""MinerU's business errors: the cloud's error codes and the errors of ours they map to.

A failed call has a non-zero code; a failed job has state `failed` in a successful call and uses the same codes. Both
are mapped here, independent of where the code was found.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from penstock.adapters.mineru.errors import (
    MineruBusy,
    MineruFailed,
    MineruJobLost,
    MineruKeyRefused,
    MineruQuotaExhausted,
    MineruRefused,
    MineruUnavailable,
    MineruUrlUnreachable,
)
from penstock.documents.errors import DocumentEmpty, DocumentKindUnknown, DocumentTooLarge, DocumentUnreadable
from penstock.kernel.errors import PenstockError

FULL_SECONDS = 300.0  # for the submit queue to empty
DAY = timedelta(days=1)
VENDOR_ZONE = timezone(timedelta(hours=8))  # quotas reset at midnight in China
CODE_IN_MESSAGE = re.compile(r"(?<![\w-])(-(?:500|\d{5})|A02\d\d)(?!\d)")


@dataclass(frozen=True, kw_only=True)
class ReportedError:
    """An error code and message, with the document, job and time they refer to."""

    code: str
    words: str
    filename: str
    job: str
    now: datetime

    @property
    def reason(self) -> str:
        """Message and code, for display."""
        return f"{self.words} ({self.code})" if self.code else self.words


def _key_refused(error: ReportedError) -> PenstockError:
    return MineruKeyRefused(reason=error.reason)


def _refused(error: ReportedError) -> PenstockError:
    return MineruRefused(filename=error.filename, reason=error.reason)


def _unavailable(error: ReportedError) -> PenstockError:
    return MineruUnavailable(reason=error.reason)


def _failed(error: ReportedError) -> PenstockError:
    return MineruFailed(filename=error.filename, reason=error.reason)


def _lost(error: ReportedError) -> PenstockError:
    return MineruJobLost(job=error.job)


def _busy(error: ReportedError) -> PenstockError:
    return MineruBusy(wait_seconds=FULL_SECONDS, reason=error.reason)


def _quota_exhausted(error: ReportedError) -> PenstockError:
    there = error.now.astimezone(VENDOR_ZONE)
    midnight = there.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
    return MineruQuotaExhausted(wait_seconds=(midnight - there).total_seconds(), reason=error.reason)


def _unread(error: ReportedError) -> PenstockError:
    return MineruUrlUnreachable(filename=error.filename, reason=error.reason)


def _unreadable(error: ReportedError) -> PenstockError:
    return DocumentUnreadable(filename=error.filename, kind="a document by MinerU", reason=error.reason)


def _too_large(error: ReportedError) -> PenstockError:
    return DocumentTooLarge(filename=error.filename, reason=f"MinerU says {error.reason}")


def _kind(error: ReportedError) -> PenstockError:
    return DocumentKindUnknown(filename=error.filename, seen=error.reason)


def _empty(error: ReportedError) -> PenstockError:
    return DocumentEmpty(filename=error.filename)


ERRORS_BY_CODE: Mapping[str, Callable[[ReportedError], PenstockError]] = {
    "A0202": _key_refused,
    "A0211": _key_refused,
    "-500": _refused,
    "-10001": _unavailable,
    "-10002": _refused,
    "-60001": _unavailable,
    "-60002": _kind,
    "-60003": _unreadable,
    "-60004": _empty,
    "-60005": _too_large,
    "-60006": _too_large,
    "-60007": _unavailable,
    "-60008": _unread,
    "-60009": _busy,
    "-60010": _failed,
    "-60011": _lost,
    "-60012": _lost,
    "-60013": _refused,
    "-60015": _unreadable,
    "-60016": _failed,
    "-60017": _refused,
    "-60018": _quota_exhausted,
    "-60019": _quota_exhausted,
    "-60020": _failed,
    "-60021": _failed,
    "-60022": _failed,
}


def error_of_call(error: ReportedError) -> PenstockError:
    """The error of a failed call. Unknown codes count as transient: new ones appear without notice."""
    return ERRORS_BY_CODE.get(error.code, _unavailable)(error)


def error_of_job(error: ReportedError) -> PenstockError:
    """The error of a failed job. Its code may be only in the message, or missing."""
    factory = ERRORS_BY_CODE.get(error.code)
    if factory is None and (found := CODE_IN_MESSAGE.search(error.words)):
        factory = ERRORS_BY_CODE.get(found[1])
    return (factory or _failed)(error)
