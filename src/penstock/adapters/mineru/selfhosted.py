"""A self-hosted server: `mineru-api`, or `mineru-router` in front of several.

A document is submitted as one form. The server holds jobs in memory, so a restart loses them; it reports no pages, only
the number of jobs ahead. Servers before version 3 support only one long synchronous call.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO

import aiohttp

from penstock.adapters.mineru.config import MineruConfig
from penstock.adapters.mineru.errors import MineruFailed, MineruJobLost, MineruRefused, MineruUnavailable
from penstock.adapters.mineru.heartbeat import with_heartbeat
from penstock.adapters.mineru.http import MineruHttp, MineruResponse
from penstock.adapters.mineru.jobs import DocumentPart, DownloadTarget, JobStatus, MineruJob, PartStatus, is_valid_id
from penstock.adapters.mineru.session import MineruSession
from penstock.kernel.clock import Clock
from penstock.kernel.json_object import JsonObject

NOT_THERE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
ZIP_FORM = {"response_format_zip": "true", "return_md": "true", "return_content_list": "true"}


@dataclass(frozen=True, kw_only=True)
class _UploadFile:
    """A file to upload and the names used in responses about it."""

    path: Path
    name: str
    part: DocumentPart
    filename: str


class SelfHosted:
    """A `mineru-api` server."""

    def __init__(self, http: MineruHttp, clock: Clock, config: MineruConfig) -> None:
        self._http = http
        self._clock = clock
        self._config = config

    async def check(self) -> str:
        """The server version, or "" if it is too old to report one. `MineruUnavailable` if it is unhealthy."""
        response = await self._http.request("GET", "/health")
        if response.status in NOT_THERE:
            return ""
        if response.status != HTTPStatus.OK or response.body.get("status") != "healthy":
            raise MineruUnavailable(reason=f"HTTP {response.status} for its health")
        return self._http.short_text(response.body.get("version") or "unknown")

    async def send(self, session: MineruSession) -> MineruJob:
        """Submit the document. A server without jobs returns the result in the same call."""
        part = session.parts[0]
        path = await session.file(part)
        upload = _UploadFile(path=path, name=session.name_of(part), part=part, filename=session.filename)
        job = await self._submit(upload, session) if await self.check() else None
        return job or await self._parse_synchronously(upload, session)

    async def resume_upload(self, job: MineruJob, session: MineruSession) -> MineruJob:  # noqa: ARG002  (the Protocol's signature)
        """Nothing to do: a document is uploaded in one request."""
        return job

    async def get_status(self, job: MineruJob, filename: str) -> JobStatus:
        """The state, and the number of jobs ahead."""
        response = await self._http.request("GET", f"/tasks/{job.id}")
        if response.status == HTTPStatus.NOT_FOUND:
            raise MineruJobLost(job=job.id)
        if response.status != HTTPStatus.OK:
            raise MineruUnavailable(reason=f"HTTP {response.status} for a job")
        return {job.parts[0]: self._part(response.body, filename)}

    async def fetch(self, job: MineruJob, done: PartStatus, target: DownloadTarget) -> None:  # noqa: ARG002  (the Protocol's signature; a job has one result)
        """Download the zip from the server itself."""
        url = f"{self._config.address}/tasks/{job.id}/result"
        status = await self._http.fetch(url, target)
        if status == HTTPStatus.NOT_FOUND:
            raise MineruJobLost(job=job.id)
        if status == HTTPStatus.CONFLICT:
            raise MineruFailed(filename=target.filename, reason="the job failed")
        if status != HTTPStatus.OK:
            raise MineruUnavailable(reason=f"HTTP {status} for a result")

    async def _submit(self, upload: _UploadFile, session: MineruSession) -> MineruJob | None:
        """The job, or None if the server has no jobs."""
        sending = self._post(upload)
        response = await with_heartbeat(sending, session.heartbeat, self._clock, self._config.poll_interval)
        if response.status in NOT_THERE:
            return None
        self._check(response, upload.filename)
        task_id = response.body.get("task_id")
        if not is_valid_id(task_id):
            raise MineruUnavailable(reason="the response has no job id")
        job = MineruJob(id=task_id, endpoint=self._config.address, parts=(upload.part.number,))
        await session.keep(job)
        return job

    async def _post(self, upload: _UploadFile) -> MineruResponse:
        with await asyncio.to_thread(upload.path.open, "rb") as file:
            return await self._http.post_form("/tasks", self._form(file, upload.name))

    async def _parse_synchronously(self, upload: _UploadFile, session: MineruSession) -> MineruJob:
        async with session.target() as path:
            target = DownloadTarget(path=path, max_bytes=self._config.max_result_bytes, filename=upload.filename)
            reading = self._post_and_wait(upload, target)
            response = await with_heartbeat(reading, session.heartbeat, self._clock, self._config.poll_interval)
            self._check(response, upload.filename)
            await session.take(upload.part, path)
        named = response.body.get("task_id")
        return MineruJob(
            id=named if is_valid_id(named) else "", endpoint=self._config.address, parts=(upload.part.number,)
        )

    async def _post_and_wait(self, upload: _UploadFile, target: DownloadTarget) -> MineruResponse:
        with await asyncio.to_thread(upload.path.open, "rb") as file:
            form = self._form(file, upload.name)
            return await self._http.post_for_file("/file_parse", form, target, self._config.timeout)

    def _form(self, file: BinaryIO, name: str) -> aiohttp.FormData:
        form = aiohttp.FormData({**ZIP_FORM, "lang_list": self._config.language})
        form.add_field("files", file, filename=name, content_type="application/octet-stream")
        return form

    def _check(self, response: MineruResponse, filename: str) -> None:
        if response.status in {HTTPStatus.OK, HTTPStatus.ACCEPTED}:
            return
        words = self._http.error_reason(response.body)
        if response.status == HTTPStatus.CONFLICT:
            raise MineruFailed(filename=filename, reason=words)
        raise MineruRefused(filename=filename, reason=f"HTTP {response.status}, {words}")

    def _part(self, body: JsonObject, filename: str) -> PartStatus:
        status = self._http.short_text(body.get("status"))
        fingerprint = f"{status}, {self._http.short_text(body.get('queued_ahead') or '0')} ahead"
        if status == "completed":
            return PartStatus(state="done", fingerprint=fingerprint)
        if status == "failed":
            error = MineruFailed(filename=filename, reason=self._http.sanitized(body.get("error")))
            return PartStatus(state="failed", fingerprint=fingerprint, error=error)
        return PartStatus(state="running", fingerprint=fingerprint)
