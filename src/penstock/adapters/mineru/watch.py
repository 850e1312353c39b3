"""Looking at a job until there is nothing more to expect of it.

A part's result is fetched as soon as it is done. Trouble with the line, and a server that is busy, are waited out here
and cost no attempt; what ends the watch is a failure, or MINERU_TIMEOUT without any change in what MinerU tells.
"""

from penstock.adapters.mineru.errand import Errand
from penstock.adapters.mineru.errors import MineruAway, MineruBusy, MineruFailed, MineruResultRefused, MineruStalled
from penstock.adapters.mineru.jobs import Job, Look, Part, PartLook, Sheet
from penstock.adapters.mineru.patience import Patience, while_alive
from penstock.adapters.mineru.protocol import Service
from penstock.adapters.mineru.terms import MineruTerms
from penstock.kernel.clock import Clock
from penstock.kernel.errors import PenstockError

MOST_REASON_CHARACTERS = 300


class Watch:
    """One job, looked at by one worker."""

    def __init__(self, errand: Errand, job: Job, service: Service, clock: Clock, terms: MineruTerms) -> None:
        self._errand = errand
        self._job = job
        self._service = service
        self._clock = clock
        self._terms = terms
        self._patience = Patience(clock, terms.timeout)
        self._look: Look = {}

    async def run(self) -> None:
        """Return when every part is read; raise what went wrong, when nobody is at work on the others any more."""
        while self._errand.parts:
            trouble = await self._look_once()
            if trouble is None:
                await self._check_failures()
            await self._errand.tell(self._look)
            if self._errand.parts:
                await self._check_patience(trouble)
                await self._rest(self._pause(trouble))

    async def _look_once(self) -> MineruAway | MineruBusy | None:
        """See how far it is and fetch what is done; the trouble there was, where it may pass."""
        try:
            self._look = await self._service.look(self._job, self._errand.filename)
            self._patience.see({number: part.sign for number, part in self._look.items()})
            for part in self._errand.parts:
                seen = self._look.get(part.number)
                if seen is not None and seen.state == "done":
                    await self._fetch(part, seen)
        except (MineruAway, MineruBusy) as error:
            return error
        except (MineruFailed, MineruResultRefused):
            await self._errand.drop_job()  # the same job would end the same way
            raise
        return None

    async def _fetch(self, part: Part, done: PartLook) -> None:
        errand, terms = self._errand, self._terms
        async with errand.sheet() as path:
            sheet = Sheet(path=path, most_bytes=terms.most_result_bytes, filename=errand.filename)
            fetching = self._service.fetch(self._job, done, sheet)
            await while_alive(fetching, errand.alive, self._clock, terms.poll_interval)
            await errand.take(part, path)

    async def _check_failures(self) -> None:
        """Raise a failure: at once when it is final, else when the other parts are done too, which are paid for."""
        waits, errors = False, list[PenstockError]()
        for part in self._errand.parts:
            seen = self._look.get(part.number)
            if seen is not None and seen.error is not None:
                errors.append(seen.error)
            else:
                waits = True
        if not errors:
            return
        final = next((error for error in errors if not error.retryable), None)
        if final is not None or not waits:
            await self._errand.drop_job()
            raise final or errors[0]

    async def _check_patience(self, trouble: PenstockError | None) -> None:
        seen = [self._look[part.number] for part in self._errand.parts if part.number in self._look]
        told = str(trouble).rstrip(".") if trouble else ", ".join(sorted({part.sign for part in seen}))
        reason = told[:MOST_REASON_CHARACTERS]
        try:
            self._patience.check(self._job.id, reason or "nothing is told of it")
        except MineruStalled:
            if any(part.state == "unsent" for part in seen):
                await self._errand.drop_job()  # it waits for a file that we have sent, and would do so for ever
            raise

    async def _rest(self, seconds: float) -> None:
        """Sleep, with signs of life where it takes long: a server may ask for more than a stage may be silent."""
        resting, interval = self._clock.sleep(seconds), self._terms.poll_interval
        await (resting if seconds <= interval else while_alive(resting, self._errand.alive, self._clock, interval))

    def _pause(self, trouble: MineruAway | MineruBusy | None) -> float:
        asked = trouble.wait_seconds if isinstance(trouble, MineruBusy) else 0.0
        return min(max(self._terms.poll_interval, asked), self._terms.timeout)
