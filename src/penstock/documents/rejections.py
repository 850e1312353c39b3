"""How a function inside the sandbox rejects a file.

Exceptions do not cross the process boundary, and sandboxed functions do not know the name of the file. They raise
`DocumentRejected` with an error class, the child process answers with a `Rejection`, and the parent builds the error
from it.
"""

import msgspec

from penstock.documents.errors import (
    DocumentEmpty,
    DocumentEncrypted,
    DocumentKindUnknown,
    DocumentTooLarge,
    DocumentUnreadable,
)
from penstock.kernel.errors import PenstockError

ERRORS: dict[str, type[PenstockError]] = {
    error.code: error
    for error in (DocumentEmpty, DocumentEncrypted, DocumentKindUnknown, DocumentTooLarge, DocumentUnreadable)
}


class Rejection(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer about a file that is not read: an error code and the reason."""

    code: str
    reason: str = ""

    def as_error(self, *, filename: str, kind: str) -> PenstockError:
        """The error for the caller."""
        error = ERRORS.get(self.code, DocumentUnreadable)
        return error(filename=filename, kind=kind, reason=self.reason, seen=self.reason)


class DocumentRejected(Exception):
    """Raised inside the sandbox: the file is not read any further."""

    def __init__(self, error: type[PenstockError], reason: str = "") -> None:
        super().__init__(reason)
        self.rejection = Rejection(code=error.code, reason=reason)


def too_large(reason: str) -> DocumentRejected:
    """An exception for a file that exceeds a limit."""
    return DocumentRejected(DocumentTooLarge, reason)


def unreadable(reason: str) -> DocumentRejected:
    """An exception for a file that is damaged or malicious."""
    return DocumentRejected(DocumentUnreadable, reason)
