"""The interface of MinerU's protocols."""

from typing import Protocol

from penstock.adapters.mineru.jobs import DownloadTarget, JobStatus, MineruJob, PartStatus
from penstock.adapters.mineru.session import MineruSession


class MineruService(Protocol):
    """One protocol of MinerU."""

    async def send(self, session: MineruSession) -> MineruJob:
        """Submit all unread parts."""
        ...

    async def resume_upload(self, job: MineruJob, session: MineruSession) -> MineruJob:
        """Upload the files that an earlier attempt has not uploaded."""
        ...

    async def get_status(self, job: MineruJob, filename: str) -> JobStatus:
        """The status of the job; `MineruJobLost` if the server no longer knows it."""
        ...

    async def fetch(self, job: MineruJob, done: PartStatus, target: DownloadTarget) -> None:
        """Download the zip of a finished part to a file."""
        ...
