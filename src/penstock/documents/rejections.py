"""How a reader inside the sandbox says no.

An error cannot cross the border of a child as itself, and the readers do not know what the file is called. So they
raise `TurnedAway` with the error that it will become; the child answers with a `Refusal`, and outside it is made whole.
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


class Refusal(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer about a file that will not be read: the code of an error, and why."""

    code: str
    reason: str = ""

    def as_error(self, *, filename: str, kind: str) -> PenstockError:
        """The error that the world outside is told."""
        error = ERRORS.get(self.code, DocumentUnreadable)
        return error(filename=filename, kind=kind, reason=self.reason, seen=self.reason)


class TurnedAway(Exception):
    """A reader will not go on with this file."""

    def __init__(self, error: type[PenstockError], reason: str = "") -> None:
        super().__init__(reason)
        self.refusal = Refusal(code=error.code, reason=reason)


def too_large(reason: str) -> TurnedAway:
    """To raise: the file is over a bound."""
    return TurnedAway(DocumentTooLarge, reason)


def unreadable(reason: str) -> TurnedAway:
    """To raise: the file is broken, or made to break its reader."""
    return TurnedAway(DocumentUnreadable, reason)
