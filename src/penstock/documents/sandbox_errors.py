"""How a call to the sandbox ended, told as something about the document.

What the document used up itself, processor time or memory, it would use up again. What took too long by the clock, or
was killed by others, may be the fault of a busy machine, and is tried again. What says that the sandbox itself went
away is let through: that is about us.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from penstock.documents.errors import DocumentReaderKilled, DocumentTookTooLong, DocumentTooLarge, DocumentUnreadable
from penstock.documents.rejections import Refusal
from penstock.kernel.errors import in_words
from penstock.kernel.sandbox.errors import (
    SandboxBadAnswer,
    SandboxCrashed,
    SandboxedFailure,
    SandboxKilled,
    SandboxOutOfCpu,
    SandboxOutOfMemory,
    SandboxTimedOut,
    SandboxTooMuch,
)

T = TypeVar("T")

MOST_WORDS = 200  # characters; a library may say a whole traceback
TOO_MUCH = (SandboxOutOfMemory, SandboxOutOfCpu, SandboxTooMuch)
STOPPED = (SandboxTimedOut, SandboxKilled)  # by the clock or by others
BROKEN = (SandboxCrashed, SandboxedFailure, SandboxBadAnswer)


@contextmanager
def told_of(filename: str, kind: str, page: int | None = None) -> Iterator[None]:
    """Calls inside the block are about this document, or about this page of it."""
    where = f"page {page}: " if page else ""
    try:
        yield
    except TOO_MUCH as error:
        raise DocumentTooLarge(filename=filename, reason=where + _reason(error)) from error
    except SandboxTimedOut as error:
        raise DocumentTookTooLong(filename=filename, reason=where + _reason(error)) from error
    except SandboxKilled as error:
        raise DocumentReaderKilled(filename=filename, reason=where + _reason(error)) from error
    except BROKEN as error:
        raise DocumentUnreadable(filename=filename, kind=kind, reason=where + _reason(error)) from error


def accepted(answer: T | Refusal, filename: str, kind: str) -> T:
    """The answer of a reader, unless it was a no."""
    if isinstance(answer, Refusal):
        raise answer.as_error(filename=filename, kind=kind)
    return answer


def _reason(error: BaseException) -> str:
    words = in_words(error)[:MOST_WORDS].rstrip(".")
    return words[:1].lower() + words[1:]
