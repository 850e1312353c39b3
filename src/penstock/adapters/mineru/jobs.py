"""Types shared by both protocols: parts of a document, the job that reads them, and its status."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeGuard

from penstock.kernel.errors import PenstockError

PDF = ".pdf"
MAX_ID_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class DocumentPart:
    """Some pages of a document, submitted as one file; `pages` is 0 if unknown."""

    number: int  # from 1
    first: int = 1  # its first page in the document
    pages: int = 0

    @property
    def last(self) -> int:
        """Its last page in the document."""
        return self.first + self.pages - 1

    @property
    def tag(self) -> str:
        """Its name in a job."""
        return f"part-{self.number:04d}"


@dataclass(frozen=True, kw_only=True)
class SplitPlan:
    """How a document is submitted. It is stored, so that every attempt splits alike."""

    protocol: str  # a document may be one file for a server and several for the cloud
    size_bytes: int  # of the document
    ending: str  # suffix of the file names, by which MinerU detects the format
    parts: tuple[DocumentPart, ...]
    by_upload: bool = False  # MinerU could not fetch it by URL

    @property
    def is_whole(self) -> bool:
        """Whether it is submitted unsplit."""
        return len(self.parts) == 1

    @property
    def pages(self) -> int:
        """Pages of the document, 0 if unknown."""
        return sum(part.pages for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class PendingUpload:
    """A part that is still to be uploaded."""

    part: int
    url: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class MineruJob:
    """A submitted job: its id and parts. It is valid at that endpoint only."""

    id: str
    endpoint: str
    parts: tuple[int, ...]
    uploads: tuple[PendingUpload, ...] = ()  # empty when everything is uploaded


State = Literal["unsent", "running", "done", "failed"]


@dataclass(frozen=True, kw_only=True)
class PartStatus:
    """The status of one part. `fingerprint` changes with anything MinerU reports about it."""

    state: State
    fingerprint: str
    done: int = 0
    of: int = 0
    url: str = field(default="", repr=False)  # of the result
    error: PenstockError | None = None


JobStatus = Mapping[int, PartStatus]  # by part number; parts that MinerU does not report are missing


@dataclass(frozen=True, kw_only=True)
class DownloadTarget:
    """Where a result is written, and its size limit."""

    path: Path
    max_bytes: int
    filename: str


def is_valid_id(value: object) -> TypeGuard[str]:
    """Whether this is safe in a URL path and in our own responses."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARACTERS or not value.isascii():
        return False
    return all(each.isalnum() or each in "-_" for each in value)
