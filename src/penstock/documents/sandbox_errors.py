"""Turns a failed sandbox call into an error of the document.

A document that exhausts its CPU time or memory would do so again: not retried. A timeout or a kill may be the fault of
a busy machine: retried. Errors of the sandbox itself pass through unchanged.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from penstock.documents.errors import DocumentReaderKilled, DocumentTookTooLong, DocumentTooLarge, DocumentUnreadable
from penstock.documents.rejections import Rejection
from penstock.kernel.errors import error_text
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

MAX_REASON_CHARACTERS = 200  # an error of a library may contain a whole traceback
OVER_LIMIT = (SandboxOutOfMemory, SandboxOutOfCpu, SandboxTooMuch)
INTERRUPTED = (SandboxTimedOut, SandboxKilled)  # by the clock or by others
FAILED = (SandboxCrashed, SandboxedFailure, SandboxBadAnswer)


@contextmanager
def document_errors(filename: str, kind: str, page: int | None = None) -> Iterator[None]:
    """Raise sandbox failures inside the block as errors of this document, or of one page of it."""
    where = f"page {page}: " if page else ""
    try:
        yield
    except OVER_LIMIT as error:
        raise DocumentTooLarge(filename=filename, reason=where + _reason(error)) from error
    except SandboxTimedOut as error:
        raise DocumentTookTooLong(filename=filename, reason=where + _reason(error)) from error
    except SandboxKilled as error:
        raise DocumentReaderKilled(filename=filename, reason=where + _reason(error)) from error
    except FAILED as error:
        raise DocumentUnreadable(filename=filename, kind=kind, reason=where + _reason(error)) from error


def unwrap(answer: T | Rejection, filename: str, kind: str) -> T:
    """The answer of a sandboxed function; raises the error that a rejection stands for."""
    if isinstance(answer, Rejection):
        raise answer.as_error(filename=filename, kind=kind)
    return answer


def _reason(error: BaseException) -> str:
    words = error_text(error)[:MAX_REASON_CHARACTERS].rstrip(".")
    return words[:1].lower() + words[1:]
