"""What both protocols speak of: parts of a document, the job that reads them, and how far it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeGuard

from penstock.kernel.errors import PenstockError

PDF = ".pdf"
MOST_ID_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some pages of the document that go out as one file; `pages` is 0 where nobody has counted them."""

    number: int  # from 1
    first: int = 1  # its first page in the document
    pages: int = 0

    @property
    def last(self) -> int:
        """Its last page in the document."""
        return self.first + self.pages - 1

    @property
    def tag(self) -> str:
        """What a job calls it."""
        return f"part-{self.number:04d}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a document goes out. It is kept, so that every attempt cuts it alike."""

    protocol: str  # one file for a server may be several for the cloud
    size_bytes: int  # of the document
    ending: str  # of the files' names: readers judge by it
    parts: tuple[Part, ...]
    by_upload: bool = False  # MinerU could not fetch it by its address

    @property
    def is_whole(self) -> bool:
        """Whether it goes out as it is."""
        return len(self.parts) == 1

    @property
    def pages(self) -> int:
        """Pages of the document, 0 when they are not known."""
        return sum(part.pages for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A part that is still to be put to an address."""

    part: int
    url: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What MinerU was given: its id there, and which parts. It is good at that address only."""

    id: str
    endpoint: str
    parts: tuple[int, ...]
    uploads: tuple[Upload, ...] = ()  # gone when all is sent


State = Literal["unsent", "under way", "done", "failed"]


@dataclass(frozen=True, kw_only=True)
class PartLook:
    """How far one part is. `sign` changes with whatever MinerU tells of it."""

    state: State
    sign: str
    done: int = 0
    of: int = 0
    url: str = field(default="", repr=False)  # of the result
    error: PenstockError | None = None


Look = Mapping[int, PartLook]  # by the part's number; one that MinerU does not speak of is missing


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Where a result is written, and how much of it."""

    path: Path
    most_bytes: int
    filename: str


def is_id(value: object) -> TypeGuard[str]:
    """Whether it can stand in a path, and in our own answers."""
    if not isinstance(value, str) or not 0 < len(value) <= MOST_ID_CHARACTERS or not value.isascii():
        return False
    return all(each.isalnum() or each in "-_" for each in value)
