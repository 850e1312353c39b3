"""Poll a job until all its parts are read or have failed.

A part's result is fetched as soon as it is done. Network errors and a busy server are waited out here and cost no
attempt; polling ends with a failure, or after MINERU_TIMEOUT without any change in the reported status.
"""

from penstock.adapters.mineru.config import MineruConfig
from penstock.adapters.mineru.errors import (
    MineruBusy,
    MineruFailed,
    MineruResultRefused,
    MineruStalled,
    MineruUnavailable,
)
from penstock.adapters.mineru.heartbeat import StallDetector, with_heartbeat
from penstock.adapters.mineru.jobs import DocumentPart, DownloadTarget, JobStatus, MineruJob, PartStatus
from penstock.adapters.mineru.protocol import MineruService
from penstock.adapters.mineru.session import MineruSession
from penstock.kernel.clock import Clock
from penstock.kernel.errors import PenstockError

MAX_REASON_CHARACTERS = 300


class JobPoller:
    """Polls one job in one worker."""

    def __init__(
        self, session: MineruSession, job: MineruJob, service: MineruService, clock: Clock, config: MineruConfig
    ) -> None:
        self._session = session
        self._job = job
        self._service = service
        self._clock = clock
        self._config = config
        self._stall_detector = StallDetector(clock, config.timeout)
        self._status: JobStatus = {}

    async def run(self) -> None:
        """Return when every part is read; raise an error when no unread part can still succeed."""
        while self._session.parts:
            error = await self._poll_once()
            if error is None:
                await self._check_failures()
            await self._session.report_progress(self._status)
            if self._session.parts:
                await self._check_stalled(error)
                await self._sleep(self._pause(error))

    async def _poll_once(self) -> MineruUnavailable | MineruBusy | None:
        """Get the status and fetch finished parts; returns a transient error, if there was one."""
        try:
            self._status = await self._service.get_status(self._job, self._session.filename)
            self._stall_detector.see({number: part.fingerprint for number, part in self._status.items()})
            for part in self._session.parts:
                seen = self._status.get(part.number)
                if seen is not None and seen.state == "done":
                    await self._fetch(part, seen)
        except (MineruUnavailable, MineruBusy) as error:
            return error
        except (MineruFailed, MineruResultRefused):
            await self._session.drop_job()  # the same job would end in the same way
            raise
        return None

    async def _fetch(self, part: DocumentPart, done: PartStatus) -> None:
        session, config = self._session, self._config
        async with session.target() as path:
            target = DownloadTarget(path=path, max_bytes=config.max_result_bytes, filename=session.filename)
            fetching = self._service.fetch(self._job, done, target)
            await with_heartbeat(fetching, session.heartbeat, self._clock, config.poll_interval)
            await session.take(part, path)

    async def _check_failures(self) -> None:
        """Raise a failure: at once if it is final, else when the other parts, which are paid for, are done too."""
        waits, errors = False, list[PenstockError]()
        for part in self._session.parts:
            seen = self._status.get(part.number)
            if seen is not None and seen.error is not None:
                errors.append(seen.error)
            else:
                waits = True
        if not errors:
            return
        final = next((error for error in errors if not error.retryable), None)
        if final is not None or not waits:
            await self._session.drop_job()
            raise final or errors[0]

    async def _check_stalled(self, error: PenstockError | None) -> None:
        seen = [self._status[part.number] for part in self._session.parts if part.number in self._status]
        text = str(error).rstrip(".") if error else ", ".join(sorted({part.fingerprint for part in seen}))
        reason = text[:MAX_REASON_CHARACTERS]
        try:
            self._stall_detector.check(self._job.id, reason or "no status reported")
        except MineruStalled:
            if any(part.state == "unsent" for part in seen):
                await self._session.drop_job()  # it waits for a file that was uploaded, and would do so for ever
            raise

    async def _sleep(self, seconds: float) -> None:
        """Sleep, with heartbeats during a long wait: a server may ask for more than the stall timeout of the stage."""
        resting, interval = self._clock.sleep(seconds), self._config.poll_interval
        await (
            resting if seconds <= interval else with_heartbeat(resting, self._session.heartbeat, self._clock, interval)
        )

    def _pause(self, error: MineruUnavailable | MineruBusy | None) -> float:
        requested = error.wait_seconds if isinstance(error, MineruBusy) else 0.0
        return min(max(self._config.poll_interval, requested), self._config.timeout)
