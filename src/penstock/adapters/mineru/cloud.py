"""MinerU's cloud, protocol v4: one batch for all parts, uploaded or fetched by URL.

A response is successful if its `code` is 0; the HTTP status says little. The API gateway has its own format for a
rejected token. Entries of a batch are identified by the `data_id` that we assign.
"""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from penstock.adapters.mineru import error_codes
from penstock.adapters.mineru.config import MineruConfig
from penstock.adapters.mineru.error_codes import ReportedError
from penstock.adapters.mineru.errors import MineruJobLost, MineruRefused, MineruUnavailable
from penstock.adapters.mineru.heartbeat import with_heartbeat
from penstock.adapters.mineru.http import MineruHttp, MineruResponse
from penstock.adapters.mineru.jobs import (
    DocumentPart,
    DownloadTarget,
    JobStatus,
    MineruJob,
    PartStatus,
    PendingUpload,
    is_valid_id,
)
from penstock.adapters.mineru.session import MineruSession
from penstock.kernel.clock import Clock
from penstock.kernel.errors import PenstockError
from penstock.kernel.json_object import JsonObject

STORED = frozenset({HTTPStatus.OK, HTTPStatus.CREATED})
BUSY = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
WEB_PAGES = frozenset({".html", ".htm"})
WEB_PAGE_MODEL = "MinerU-HTML"  # the only one that reads web pages
MAX_COUNT = 1_000_000  # bound on reported page counts


class Cloud:
    """MinerU's cloud."""

    def __init__(self, http: MineruHttp, clock: Clock, config: MineruConfig) -> None:
        self._http = http
        self._clock = clock
        self._config = config

    async def send(self, session: MineruSession) -> MineruJob:
        """Submit a batch of all unread parts, by URL if the store offers one, else by upload."""
        if self._config.source != "upload" and not session.plan.by_upload:
            links = [await self._link(session, part) for part in session.parts]
            if all(links):
                return await self._send_links(session, [str(link) for link in links])
        return await self._send_files(session)

    async def resume_upload(self, job: MineruJob, session: MineruSession) -> MineruJob:
        """Upload the remaining files. The job is stored after each, so no file is uploaded twice."""
        parts = {part.number: part for part in session.plan.parts}
        while job.uploads:
            upload = job.uploads[0]
            part = parts[upload.part]
            putting = self._put(upload.url, session, part)
            status = await with_heartbeat(putting, session.heartbeat, self._clock, self._config.poll_interval)
            _check_stored(status, job)
            job = replace(job, uploads=job.uploads[1:])
            await session.keep(job)
        return job

    async def get_status(self, job: MineruJob, filename: str) -> JobStatus:
        """The status of all parts in one request."""
        response = await self._http.request("GET", f"/extract-results/batch/{job.id}")
        if response.status == HTTPStatus.NOT_FOUND:
            raise MineruJobLost(job=job.id)
        body = self._data(response, filename, job.id)
        entries = [entry for entry in _list(body.get("extract_result")) if isinstance(entry, dict)]
        return {
            number: self._part(entry, filename, job.id)
            for number, entry in _entries_by_part(entries, job.parts).items()
        }

    async def fetch(self, job: MineruJob, done: PartStatus, target: DownloadTarget) -> None:  # noqa: ARG002  (the Protocol's signature)
        """Download the zip, which is on another server."""
        status = await self._http.fetch(done.url, target)
        if status != HTTPStatus.OK:
            raise MineruUnavailable(reason=f"HTTP {status} for a result")

    async def _link(self, session: MineruSession, part: DocumentPart) -> str | None:
        return await with_heartbeat(session.link(part), session.heartbeat, self._clock, self._config.poll_interval)

    async def _send_links(self, session: MineruSession, links: list[str]) -> MineruJob:
        files = [{"url": link, "data_id": part.tag} for link, part in zip(links, session.parts, strict=True)]
        body = await self._submit("/extract/task/batch", session, files)
        job = self._job(body, session)
        await session.keep(job)
        return job

    async def _send_files(self, session: MineruSession) -> MineruJob:
        files = [{"name": session.name_of(part), "data_id": part.tag} for part in session.parts]
        body = await self._submit("/file-urls/batch", session, files)
        urls = [url for url in _list(body.get("file_urls")) if isinstance(url, str)]
        if len(urls) != len(session.parts):
            raise MineruUnavailable(reason="the number of upload URLs does not match the number of files")
        uploads = tuple(PendingUpload(part=part.number, url=url) for part, url in zip(session.parts, urls, strict=True))
        job = replace(self._job(body, session), uploads=uploads)
        await session.keep(job)
        return await self.resume_upload(job, session)

    async def _submit(self, path: str, session: MineruSession, files: list[dict[str, str]]) -> JsonObject:
        model = WEB_PAGE_MODEL if session.plan.ending in WEB_PAGES else self._config.model_version
        options = {"model_version": model, "language": self._config.language, "enable_formula": True}
        body = {"files": files, **options, "enable_table": True}
        return self._data(await self._http.request("POST", path, body), session.filename, "")

    def _job(self, body: JsonObject, session: MineruSession) -> MineruJob:
        batch_id = body.get("batch_id")
        if not is_valid_id(batch_id):
            raise MineruUnavailable(reason="the response has no batch id")
        parts = tuple(part.number for part in session.parts)
        return MineruJob(id=batch_id, endpoint=self._config.address, parts=parts)

    async def _put(self, url: str, session: MineruSession, part: DocumentPart) -> int:
        return await self._http.put(url, await session.file(part))

    def _data(self, response: MineruResponse, filename: str, job: str) -> JsonObject:
        """The data of a successful response. Without a code, the HTTP status decides."""
        body = response.body
        code = body.get("code") if body.get("code") is not None else body.get("msgCode")
        is_good = code in (0, "0") if code is not None else response.status < HTTPStatus.BAD_REQUEST
        if not is_good or body.get("success") is False:
            words = self._http.sanitized(body.get("msg") or f"HTTP {response.status}")
            if code is None and response.status >= HTTPStatus.BAD_REQUEST and response.status not in BUSY:
                raise MineruRefused(filename=filename, reason=words)
            raise error_codes.error_of_call(self._reported(code, words, filename, job))
        data = body.get("data")
        if not isinstance(data, dict):
            raise MineruUnavailable(reason="the response has no data")
        return data

    def _part(self, entry: JsonObject, filename: str, job: str) -> PartStatus:
        state = self._http.short_text(entry.get("state"))
        progress = entry.get("extract_progress")
        counts = progress if isinstance(progress, dict) else {}
        done, of = _count(counts.get("extracted_pages")), _count(counts.get("total_pages"))
        fingerprint = f"{state} {done} {of}"
        if state == "done":
            url = entry.get("full_zip_url")
            if not isinstance(url, str) or not url:
                return PartStatus(state="running", fingerprint=fingerprint)  # the URL follows a moment later
            return PartStatus(state="done", fingerprint=fingerprint, url=url)
        if state == "failed":
            return PartStatus(state="failed", fingerprint=fingerprint, error=self._failure(entry, filename, job))
        return PartStatus(
            state="unsent" if state == "waiting-file" else "running", fingerprint=fingerprint, done=done, of=of
        )

    def _failure(self, entry: JsonObject, filename: str, job: str) -> PenstockError:
        words = self._http.sanitized(entry.get("err_msg"))
        return error_codes.error_of_job(self._reported(entry.get("err_code"), words, filename, job))

    def _reported(self, code: object, words: str, filename: str, job: str) -> ReportedError:
        shown = self._http.short_text(code) if code else ""
        return ReportedError(code=shown, words=words, filename=filename, job=job, now=self._clock.now())


def _check_stored(status: int, job: MineruJob) -> None:
    if status in STORED:
        return
    if status in BUSY or not HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        raise MineruUnavailable(reason=f"HTTP {status} for an upload")
    raise MineruJobLost(job=job.id)  # the upload URL is invalid, so the batch can never complete


def _entries_by_part(entries: list[JsonObject], parts: tuple[int, ...]) -> Mapping[int, JsonObject]:
    """The entry of each part: by our `data_id`, else by position."""
    tags = {DocumentPart(number=number).tag: number for number in parts}
    named = {tags[entry["data_id"]]: entry for entry in entries if _text(entry.get("data_id")) in tags}
    if named or len(entries) != len(parts):
        return named
    return dict(zip(parts, entries, strict=True))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return min(max(value, 0), MAX_COUNT) if isinstance(value, int) else 0
