"""The cloud, protocol v4: one batch for all parts, whether they are uploaded or fetched by their address.

An answer is good when its `code` is 0; the HTTP status says little. The gateway before the service has a form of its
own for a token that it refuses. Entries of a batch are told apart by the `data_id` that we gave them.
"""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from penstock.adapters.mineru import codes
from penstock.adapters.mineru.codes import Trouble
from penstock.adapters.mineru.errand import Errand
from penstock.adapters.mineru.errors import MineruAway, MineruLost, MineruRefused
from penstock.adapters.mineru.jobs import Job, Look, Part, PartLook, Sheet, Upload, is_id
from penstock.adapters.mineru.patience import while_alive
from penstock.adapters.mineru.terms import MineruTerms
from penstock.adapters.mineru.wire import Answer, Wire
from penstock.kernel.clock import Clock
from penstock.kernel.errors import PenstockError
from penstock.kernel.json_object import JsonObject

STORED = frozenset({HTTPStatus.OK, HTTPStatus.CREATED})
BUSY = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
WEB_PAGES = frozenset({".html", ".htm"})
WEB_PAGE_MODEL = "MinerU-HTML"  # no other reads them
MOST_COUNT = 1_000_000  # pages that a counter may speak of


class Cloud:
    """MinerU's cloud."""

    def __init__(self, wire: Wire, clock: Clock, terms: MineruTerms) -> None:
        self._wire = wire
        self._clock = clock
        self._terms = terms

    async def send(self, errand: Errand) -> Job:
        """Make a batch of all that is to be read, by addresses where they will do, else by uploads."""
        if self._terms.source != "upload" and not errand.plan.by_upload:
            links = [await self._link(errand, part) for part in errand.parts]
            if all(links):
                return await self._send_links(errand, [str(link) for link in links])
        return await self._send_files(errand)

    async def go_on_sending(self, job: Job, errand: Errand) -> Job:
        """Put what is not put yet; after each file the job is kept anew, so that nothing is put twice."""
        parts = {part.number: part for part in errand.plan.parts}
        while job.uploads:
            upload = job.uploads[0]
            part = parts[upload.part]
            putting = self._put(upload.url, errand, part)
            status = await while_alive(putting, errand.alive, self._clock, self._terms.poll_interval)
            _check_stored(status, job)
            job = replace(job, uploads=job.uploads[1:])
            await errand.keep(job)
        return job

    async def look(self, job: Job, filename: str) -> Look:
        """One question for all parts."""
        answer = await self._wire.ask("GET", f"/extract-results/batch/{job.id}")
        if answer.status == HTTPStatus.NOT_FOUND:
            raise MineruLost(job=job.id)
        body = self._good(answer, filename, job.id)
        entries = [entry for entry in _list(body.get("extract_result")) if isinstance(entry, dict)]
        return {number: self._part(entry, filename, job.id) for number, entry in _matched(entries, job.parts).items()}

    async def fetch(self, job: Job, done: PartLook, sheet: Sheet) -> None:  # noqa: ARG002  (the Protocol's)
        """The zip lies on another server."""
        status = await self._wire.fetch(done.url, sheet)
        if status != HTTPStatus.OK:
            raise MineruAway(reason=f"HTTP {status} for a result")

    async def _link(self, errand: Errand, part: Part) -> str | None:
        return await while_alive(errand.link(part), errand.alive, self._clock, self._terms.poll_interval)

    async def _send_links(self, errand: Errand, links: list[str]) -> Job:
        files = [{"url": link, "data_id": part.tag} for link, part in zip(links, errand.parts, strict=True)]
        body = await self._submit("/extract/task/batch", errand, files)
        job = self._job(body, errand)
        await errand.keep(job)
        return job

    async def _send_files(self, errand: Errand) -> Job:
        files = [{"name": errand.name_of(part), "data_id": part.tag} for part in errand.parts]
        body = await self._submit("/file-urls/batch", errand, files)
        urls = [url for url in _list(body.get("file_urls")) if isinstance(url, str)]
        if len(urls) != len(errand.parts):
            raise MineruAway(reason="it gave another number of upload addresses than there are files")
        uploads = tuple(Upload(part=part.number, url=url) for part, url in zip(errand.parts, urls, strict=True))
        job = replace(self._job(body, errand), uploads=uploads)
        await errand.keep(job)
        return await self.go_on_sending(job, errand)

    async def _submit(self, path: str, errand: Errand, files: list[dict[str, str]]) -> JsonObject:
        model = WEB_PAGE_MODEL if errand.plan.ending in WEB_PAGES else self._terms.model_version
        options = {"model_version": model, "language": self._terms.language, "enable_formula": True}
        body = {"files": files, **options, "enable_table": True}
        return self._good(await self._wire.ask("POST", path, body), errand.filename, "")

    def _job(self, body: JsonObject, errand: Errand) -> Job:
        batch_id = body.get("batch_id")
        if not is_id(batch_id):
            raise MineruAway(reason="it gave no id for a batch")
        parts = tuple(part.number for part in errand.parts)
        return Job(id=batch_id, endpoint=self._terms.address, parts=parts)

    async def _put(self, url: str, errand: Errand, part: Part) -> int:
        return await self._wire.put(url, await errand.file(part))

    def _good(self, answer: Answer, filename: str, job: str) -> JsonObject:
        """The data of a good answer. Where there is no code at all, the status has the word."""
        body = answer.body
        code = body.get("code") if body.get("code") is not None else body.get("msgCode")
        is_good = code in (0, "0") if code is not None else answer.status < HTTPStatus.BAD_REQUEST
        if not is_good or body.get("success") is False:
            words = self._wire.said(body.get("msg") or f"HTTP {answer.status}")
            if code is None and answer.status >= HTTPStatus.BAD_REQUEST and answer.status not in BUSY:
                raise MineruRefused(filename=filename, reason=words)
            raise codes.of_call(self._trouble(code, words, filename, job))
        data = body.get("data")
        if not isinstance(data, dict):
            raise MineruAway(reason="its answer has no data")
        return data

    def _part(self, entry: JsonObject, filename: str, job: str) -> PartLook:
        state = self._wire.word(entry.get("state"))
        told = entry.get("extract_progress")
        counts = told if isinstance(told, dict) else {}
        done, of = _count(counts.get("extracted_pages")), _count(counts.get("total_pages"))
        sign = f"{state} {done} {of}"
        if state == "done":
            url = entry.get("full_zip_url")
            if not isinstance(url, str) or not url:
                return PartLook(state="under way", sign=sign)  # it comes a moment later
            return PartLook(state="done", sign=sign, url=url)
        if state == "failed":
            return PartLook(state="failed", sign=sign, error=self._failure(entry, filename, job))
        return PartLook(state="unsent" if state == "waiting-file" else "under way", sign=sign, done=done, of=of)

    def _failure(self, entry: JsonObject, filename: str, job: str) -> PenstockError:
        words = self._wire.said(entry.get("err_msg"))
        return codes.of_job(self._trouble(entry.get("err_code"), words, filename, job))

    def _trouble(self, code: object, words: str, filename: str, job: str) -> Trouble:
        shown = self._wire.word(code) if code else ""
        return Trouble(code=shown, words=words, filename=filename, job=job, now=self._clock.now())


def _check_stored(status: int, job: Job) -> None:
    if status in STORED:
        return
    if status in BUSY or not HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        raise MineruAway(reason=f"HTTP {status} for an upload")
    raise MineruLost(job=job.id)  # the address is no longer good, so the batch can never be whole


def _matched(entries: list[JsonObject], parts: tuple[int, ...]) -> Mapping[int, JsonObject]:
    """The entry of each part: by the id that we gave it, else by its place."""
    tags = {Part(number=number).tag: number for number in parts}
    named = {tags[entry["data_id"]]: entry for entry in entries if _text(entry.get("data_id")) in tags}
    if named or len(entries) != len(parts):
        return named
    return dict(zip(parts, entries, strict=True))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return min(max(value, 0), MOST_COUNT) if isinstance(value, int) else 0
