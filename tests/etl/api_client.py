"""A client of the etl routes: calls the ASGI app without a server, on the database of a test."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from penstock.access.domain import Caller, Scope
from penstock.adapters.disk import DiskBlobs
from penstock.documents.ocr.provider import Reading, StageContext
from penstock.documents.pages import Citation, read_pages
from penstock.documents.postprocessor import ExtractionResult, ExtractionRule
from penstock.etl import api, worker
from penstock.etl.deps import Config, Deps
from penstock.etl.domain import Mode
from penstock.etl.rule_validation import PRELOAD
from penstock.kernel.backlog import SqlQueuePositions
from penstock.kernel.blobs import Blobs
from penstock.kernel.db import Db
from penstock.kernel.http.problems import install_error_handlers
from penstock.kernel.http.routes import RouteIndex
from penstock.kernel.queue import JobQueue
from penstock.kernel.relay import Relay
from penstock.kernel.runstate import SqlRunState
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.stages.run_waits import RunWaits
from penstock.kernel.workers import Workers
from tests.asgi import STALL, Response, send_request
from tests.contract import RouteContract
from tests.fakes.authenticators import FixedCallers
from tests.fakes.ocr import EchoOcr

CALLERS = {
    "root": Caller(name="root", user_id=1, scope=Scope.ADMIN, key_id="k-root"),
    "anna": Caller(name="anna", user_id=5, scope=Scope.WRITE, key_id="k-anna"),
    "bert": Caller(name="bert", user_id=6, scope=Scope.WRITE, key_id="k-bert"),
}
CONTRACT = RouteContract([route for router in api.ROUTERS for route in router.routes])
INVOICE = {"type": "object", "properties": {"total": {"type": "number", "title": "Total"}}}
BOUNDARY = "so-far-and-no-further"


class TotalsPostProcessor:
    """Finds `Total: …` for every rule, with its citation."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def identity(self, rule: ExtractionRule) -> None:
        """Not cached."""

    async def extract(
        self, filename: str, reading: Reading, rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        [page] = read_pages((await self._blobs.get(reading.pages_key)).splitlines())
        found = re.search(r"Total: ([0-9.]+)", page.markdown)
        value = {"total": float(found[1]) if found else None, "filename": filename}
        citation = Citation(pointer="/total", grounded=found is not None, page=1, text=found[0] if found else None)
        return ExtractionResult(value=value, strategy="totals", citations=(citation,))


@dataclass(frozen=True, kw_only=True)
class EtlClient:
    """The etl app and its callers."""

    deps: Deps
    app: FastAPI

    @property
    def ocr(self) -> EchoOcr:
        """The OCR provider."""
        assert isinstance(self.deps.provider, EchoOcr)
        return self.deps.provider

    async def call(self, method: str, path: str, body: object = None, *, key: str = "anna", **headers: str) -> Response:
        """Send a request below /api/v1/etl; underscores in header names stand for hyphens."""
        raw = b"" if body is None else json.dumps(body).encode()
        parts = (raw, STALL) if method == "GET" else (raw,)  # keeps the client connected during a long response
        given = {"content_type": "application/json", "x_api_key": key, **headers}
        response = await send_request(self.app, method, f"/api/v1/etl{path}", *parts, **given)
        CONTRACT.check(method, f"/api/v1/etl{path}", response)
        return response

    async def json(self, method: str, path: str, body: object = None, *, key: str = "anna") -> Any:
        """The JSON of a successful response."""
        answer = await self.call(method, path, body, key=key)
        assert answer.status < 300, answer.body
        return answer.json if answer.body else None

    async def refused(self, method: str, path: str, body: object = None, *, key: str = "anna") -> tuple[int, str]:
        """Status and code of an error response."""
        answer = await self.call(method, path, body, key=key)
        assert answer.status >= 400, answer.body
        assert answer.headers["content-type"] == "application/problem+json"
        return answer.status, answer.json["code"]

    async def upload(self, content: bytes, **fields: str) -> Response:
        """Upload a form with a file and fields."""
        filename = fields.pop("filename", "invoice.md")
        parts = {f'name="file"; filename="{filename}"': content}
        parts |= {f'name="{name}"': value.encode() for name, value in {"project_id": "3", **fields}.items()}
        return await self.send_form(form_of(parts))

    async def send_form(self, form: bytes, *, chunk_bytes: int = 1000, **headers: str) -> Response:
        """Send a form in chunks of this size."""
        chunks = [form[start : start + chunk_bytes] for start in range(0, len(form), chunk_bytes)]
        return await self.send_chunks(chunks, **headers)

    async def send_chunks(self, chunks: Sequence[bytes], **headers: str) -> Response:
        """Send a form in these chunks."""
        given = {"content_type": f"multipart/form-data; boundary={BOUNDARY}", "x_api_key": "anna", **headers}
        response = await send_request(self.app, "POST", "/api/v1/etl/upload_and_submit", *chunks, **given)
        CONTRACT.check("POST", "/api/v1/etl/upload_and_submit", response)
        return response

    async def submit(self, text: str = "Total: 12.5", *, name: str = "a.md", key: str = "anna", **more: Any) -> int:
        """Store a document and submit a task for it; returns the task id."""
        user_id = CALLERS[key].user_id
        await self.deps.blobs.put(f"users/{user_id}/raw/3/{name}", text.encode())
        answer = await self.call("POST", "/submit", {"project_id": 3, "filename": name, **more}, key=key)
        assert answer.status == 202, answer.body
        task_id: int = answer.json["task_id"]
        return task_id

    async def work(self) -> None:
        """Run due jobs, and deliver messages to run state."""
        workers = Workers(
            self.deps.db, self.deps.queue, worker.handlers(self.deps), owner="w", modules=["etl"], slots=1
        )
        await workers.run_until_empty()
        relay = Relay(self.deps.db, {}, sinks=[worker.RunStateSink(self.deps)], owner="relay")
        while await relay.deliver():
            pass

    async def keys(self, prefix: str) -> list[str]:
        """The blob keys with a prefix."""
        return [blob.key for blob in (await self.deps.blobs.list(prefix)).blobs]


def form_of(parts: dict[str, bytes]) -> bytes:
    """A multipart body of these parts, by their Content-Disposition parameters."""
    lines = []
    for named, content in parts.items():
        lines.append(f"--{BOUNDARY}\r\nContent-Disposition: form-data; {named}\r\n\r\n".encode() + content + b"\r\n")
    return b"".join(lines) + f"--{BOUNDARY}--\r\n".encode()


@asynccontextmanager
async def open_client(db: Db, folder: Path, **config: Any) -> AsyncIterator[EtlClient]:
    """A client of the module with these settings."""
    blobs = DiskBlobs(folder / "blobs")
    post_processor = TotalsPostProcessor(blobs)
    async with Sandbox(preload=PRELOAD) as sandbox:
        runs = SqlRunState(db, live_seconds=3600, final_seconds=3600)
        deps = Deps(
            db=db,
            queue=JobQueue(),
            runs=runs,
            blobs=blobs,
            sandbox=sandbox,
            provider=EchoOcr(blobs),
            post_processors={Mode.SKIP: post_processor, Mode.FIELDS: post_processor},
            scratch=folder / "scratch",
            config=Config(**config),
            waits=RunWaits(runs, db.wakeups),
            positions=SqlQueuePositions(db),
        )
        yield client_with(deps)


def client_with(deps: Deps, **changes: Any) -> EtlClient:
    """A client of the module with some dependencies replaced."""
    deps = replace(deps, **changes)
    app = FastAPI()
    app.state.db, app.state.etl, app.state.access = deps.db, deps, FixedCallers(**CALLERS)
    app.router.routes[:] = [RouteIndex([route for router in api.ROUTERS for route in router.routes])]
    install_error_handlers(app)
    return EtlClient(deps=deps, app=app)
