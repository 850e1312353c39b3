"""A server of one's own: `mineru-api`, or `mineru-router` before several of them.

A document goes out in one form. The server keeps jobs in memory, so a restart forgets them; it tells no pages, only how
many jobs are ahead. Servers from before version 3 know one long call only, which is made where there is no other.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO

import aiohttp

from penstock.adapters.mineru.errand import Errand
from penstock.adapters.mineru.errors import MineruAway, MineruFailed, MineruLost, MineruRefused
from penstock.adapters.mineru.jobs import Job, Look, Part, PartLook, Sheet, is_id
from penstock.adapters.mineru.patience import while_alive
from penstock.adapters.mineru.terms import MineruTerms
from penstock.adapters.mineru.wire import Answer, Wire
from penstock.kernel.clock import Clock
from penstock.kernel.json_object import JsonObject

NOT_THERE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
ZIP_FORM = {"response_format_zip": "true", "return_md": "true", "return_content_list": "true"}


@dataclass(frozen=True, kw_only=True)
class _Parcel:
    """A file on its way, and what the answers about it are called by."""

    path: Path
    name: str
    part: Part
    filename: str


class SelfHosted:
    """A `mineru-api` server."""

    def __init__(self, wire: Wire, clock: Clock, terms: MineruTerms) -> None:
        self._wire = wire
        self._clock = clock
        self._terms = terms

    async def check(self) -> str:
        """The version of the server, or "" where it is too old to say. `MineruAway` when it is not well."""
        answer = await self._wire.ask("GET", "/health")
        if answer.status in NOT_THERE:
            return ""
        if answer.status != HTTPStatus.OK or answer.body.get("status") != "healthy":
            raise MineruAway(reason=f"HTTP {answer.status} for its health")
        return self._wire.word(answer.body.get("version") or "unknown")

    async def send(self, errand: Errand) -> Job:
        """Give it the document. Where it knows no jobs, the result comes back in the same call."""
        part = errand.parts[0]
        path = await errand.file(part)
        parcel = _Parcel(path=path, name=errand.name_of(part), part=part, filename=errand.filename)
        job = await self._submit(parcel, errand) if await self.check() else None
        return job or await self._read_at_once(parcel, errand)

    async def go_on_sending(self, job: Job, errand: Errand) -> Job:  # noqa: ARG002  (the Protocol's)
        """Nothing is ever half sent."""
        return job

    async def look(self, job: Job, filename: str) -> Look:
        """The state, and how many wait before it."""
        answer = await self._wire.ask("GET", f"/tasks/{job.id}")
        if answer.status == HTTPStatus.NOT_FOUND:
            raise MineruLost(job=job.id)
        if answer.status != HTTPStatus.OK:
            raise MineruAway(reason=f"HTTP {answer.status} for a job")
        return {job.parts[0]: self._part(answer.body, filename)}

    async def fetch(self, job: Job, done: PartLook, sheet: Sheet) -> None:  # noqa: ARG002  (the Protocol's; a job has one result)
        """The zip is an answer of the server itself."""
        url = f"{self._terms.address}/tasks/{job.id}/result"
        status = await self._wire.fetch(url, sheet)
        if status == HTTPStatus.NOT_FOUND:
            raise MineruLost(job=job.id)
        if status == HTTPStatus.CONFLICT:
            raise MineruFailed(filename=sheet.filename, reason="its job has failed")
        if status != HTTPStatus.OK:
            raise MineruAway(reason=f"HTTP {status} for a result")

    async def _submit(self, parcel: _Parcel, errand: Errand) -> Job | None:
        """The job, or None where the server knows no jobs."""
        sending = self._post(parcel)
        answer = await while_alive(sending, errand.alive, self._clock, self._terms.poll_interval)
        if answer.status in NOT_THERE:
            return None
        self._check(answer, parcel.filename)
        task_id = answer.body.get("task_id")
        if not is_id(task_id):
            raise MineruAway(reason="it gave no id for a job")
        job = Job(id=task_id, endpoint=self._terms.address, parts=(parcel.part.number,))
        await errand.keep(job)
        return job

    async def _post(self, parcel: _Parcel) -> Answer:
        with await asyncio.to_thread(parcel.path.open, "rb") as file:
            return await self._wire.post_form("/tasks", self._form(file, parcel.name))

    async def _read_at_once(self, parcel: _Parcel, errand: Errand) -> Job:
        async with errand.sheet() as path:
            sheet = Sheet(path=path, most_bytes=self._terms.most_result_bytes, filename=parcel.filename)
            reading = self._post_and_wait(parcel, sheet)
            answer = await while_alive(reading, errand.alive, self._clock, self._terms.poll_interval)
            self._check(answer, parcel.filename)
            await errand.take(parcel.part, path)
        named = answer.body.get("task_id")
        return Job(id=named if is_id(named) else "", endpoint=self._terms.address, parts=(parcel.part.number,))

    async def _post_and_wait(self, parcel: _Parcel, sheet: Sheet) -> Answer:
        with await asyncio.to_thread(parcel.path.open, "rb") as file:
            form = self._form(file, parcel.name)
            return await self._wire.post_for_file("/file_parse", form, sheet, self._terms.timeout)

    def _form(self, file: BinaryIO, name: str) -> aiohttp.FormData:
        form = aiohttp.FormData({**ZIP_FORM, "lang_list": self._terms.language})
        form.add_field("files", file, filename=name, content_type="application/octet-stream")
        return form

    def _check(self, answer: Answer, filename: str) -> None:
        if answer.status in {HTTPStatus.OK, HTTPStatus.ACCEPTED}:
            return
        words = self._wire.reason(answer.body)
        if answer.status == HTTPStatus.CONFLICT:
            raise MineruFailed(filename=filename, reason=words)
        raise MineruRefused(filename=filename, reason=f"HTTP {answer.status}, {words}")

    def _part(self, body: JsonObject, filename: str) -> PartLook:
        status = self._wire.word(body.get("status"))
        sign = f"{status}, {self._wire.word(body.get('queued_ahead') or '0')} ahead"
        if status == "completed":
            return PartLook(state="done", sign=sign)
        if status == "failed":
            error = MineruFailed(filename=filename, reason=self._wire.said(body.get("error")))
            return PartLook(state="failed", sign=sign, error=error)
        return PartLook(state="under way", sign=sign)
