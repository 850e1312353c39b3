"""What the reader asks of each protocol of MinerU."""

from typing import Protocol

from penstock.adapters.mineru.errand import Errand
from penstock.adapters.mineru.jobs import Job, Look, PartLook, Sheet


class Service(Protocol):
    """One protocol of MinerU."""

    async def send(self, errand: Errand) -> Job:
        """Give MinerU all that is to be read."""
        ...

    async def go_on_sending(self, job: Job, errand: Errand) -> Job:
        """Send what an earlier attempt has not sent."""
        ...

    async def look(self, job: Job, filename: str) -> Look:
        """How far it is; `MineruLost` when nobody there knows it any more."""
        ...

    async def fetch(self, job: Job, done: PartLook, sheet: Sheet) -> None:
        """Write the zip of a part that is done to a file."""
        ...
