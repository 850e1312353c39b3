"""The room behind its routes, asked as clients ask: without a server between, on the database that a test has."""

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
from penstock.documents.ocr.provider import Desk, Reading
from penstock.documents.pages import Citation, read_pages
from penstock.documents.postprocessor import Shaped, ShapeRule
from penstock.etl import api, worker
from penstock.etl.deps import Deps, Terms
from penstock.etl.domain import Mode
from penstock.etl.schemas import PRELOAD
from penstock.kernel.blobs import Blobs
from penstock.kernel.db import Db
from penstock.kernel.http.problems import install_error_handlers
from penstock.kernel.http.routes import RouteIndex
from penstock.kernel.outbox import Relay
from penstock.kernel.queue import JobQueue
from penstock.kernel.runstate import SqlRunState
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.workers import Workers
from tests.asgi import STALL, Response, send_request
from tests.fakes.authenticators import FixedCallers
from tests.fakes.ocr import EchoOcr

CALLERS = {
    "root": Caller(name="root", user_id=1, scope=Scope.ADMIN, key_id="k-root"),
    "anna": Caller(name="anna", user_id=5, scope=Scope.WRITE, key_id="k-anna"),
    "bert": Caller(name="bert", user_id=6, scope=Scope.WRITE, key_id="k-bert"),
}
INVOICE = {"type": "object", "properties": {"total": {"type": "number", "title": "Total"}}}
BOUNDARY = "so-far-and-no-further"


class ShaperOfTotals:
    """Finds `Total: …` for every rule, and says where."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def identity(self, rule: ShapeRule) -> None:
        """It costs nothing."""

    async def shape(self, filename: str, reading: Reading, rule: ShapeRule, desk: Desk) -> Shaped:
        [page] = read_pages((await self._blobs.get(reading.pages_key)).splitlines())
        found = re.search(r"Total: ([0-9.]+)", page.markdown)
        value = {"total": float(found[1]) if found else None, "filename": filename}
        citation = Citation(pointer="/total", grounded=found is not None, page=1, text=found[0] if found else None)
        return Shaped(value=value, strategy="totals", citations=(citation,))


@dataclass(frozen=True, kw_only=True)
class Room:
    """The room, its app, and those who call."""

    tools: Deps
    app: FastAPI

    @property
    def ocr(self) -> EchoOcr:
        """Who reads documents here."""
        assert isinstance(self.tools.provider, EchoOcr)
        return self.tools.provider

    async def call(self, method: str, path: str, body: object = None, *, key: str = "anna", **headers: str) -> Response:
        """One request below /api/v1/etl; names of headers have their hyphens as underscores."""
        raw = b"" if body is None else json.dumps(body).encode()
        parts = (raw, STALL) if method == "GET" else (raw,)  # who is gone is not sent the rest of a long answer
        given = {"content_type": "application/json", "x_api_key": key, **headers}
        return await send_request(self.app, method, f"/api/v1/etl{path}", *parts, **given)

    async def json(self, method: str, path: str, body: object = None, *, key: str = "anna") -> Any:
        """What is answered where it must be a success."""
        answer = await self.call(method, path, body, key=key)
        assert answer.status < 300, answer.body
        return answer.json if answer.body else None

    async def refused(self, method: str, path: str, body: object = None, *, key: str = "anna") -> tuple[int, str]:
        """Status and code of an answer that must be none."""
        answer = await self.call(method, path, body, key=key)
        assert answer.status >= 400, answer.body
        assert answer.headers["content-type"] == "application/problem+json"
        return answer.status, answer.json["code"]

    async def upload(self, content: bytes, **fields: str) -> Response:
        """A form with a file, which may be called by a `filename`, and fields."""
        filename = fields.pop("filename", "invoice.md")
        parts = {f'name="file"; filename="{filename}"': content}
        parts |= {f'name="{name}"': value.encode() for name, value in {"project_id": "3", **fields}.items()}
        return await self.send_form(form_of(parts))

    async def send_form(self, form: bytes, *, piece_bytes: int = 1000, **headers: str) -> Response:
        """A form as it is, in pieces of this size."""
        pieces = [form[start : start + piece_bytes] for start in range(0, len(form), piece_bytes)]
        return await self.send_pieces(pieces, **headers)

    async def send_pieces(self, pieces: Sequence[bytes], **headers: str) -> Response:
        """A form in these pieces."""
        given = {"content_type": f"multipart/form-data; boundary={BOUNDARY}", "x_api_key": "anna", **headers}
        return await send_request(self.app, "POST", "/api/v1/etl/upload_and_submit", *pieces, **given)

    async def submit(self, text: str = "Total: 12.5", *, name: str = "a.md", key: str = "anna", **more: Any) -> int:
        """A document in the store and a task for it; the task's number."""
        user_id = CALLERS[key].user_id
        await self.tools.blobs.put(f"users/{user_id}/raw/3/{name}", text.encode())
        answer = await self.call("POST", "/submit", {"project_id": 3, "filename": name, **more}, key=key)
        assert answer.status == 202, answer.body
        task_id: int = answer.json["task_id"]
        return task_id

    async def work(self) -> None:
        """Do the room's jobs that are due, and tell run state."""
        workers = Workers(
            self.tools.db, self.tools.queue, worker.handlers(self.tools), owner="w", modules=["etl"], slots=1
        )
        await workers.run_until_empty()
        relay = Relay(self.tools.db, {}, carriers=[worker.RunStateCarrier(self.tools)], owner="relay")
        while await relay.deliver():
            pass

    async def keys(self, prefix: str) -> list[str]:
        """What lies in the store."""
        return [blob.key for blob in (await self.tools.blobs.list(prefix)).blobs]


def form_of(parts: dict[str, bytes]) -> bytes:
    """A form by what its parts say of themselves."""
    lines = []
    for named, content in parts.items():
        lines.append(f"--{BOUNDARY}\r\nContent-Disposition: form-data; {named}\r\n\r\n".encode() + content + b"\r\n")
    return b"".join(lines) + f"--{BOUNDARY}--\r\n".encode()


@asynccontextmanager
async def open_room(db: Db, folder: Path, **terms: Any) -> AsyncIterator[Room]:
    """The room under these terms."""
    blobs = DiskBlobs(folder / "blobs")
    shaper = ShaperOfTotals(blobs)
    async with Sandbox(preload=PRELOAD) as sandbox:
        tools = Deps(
            db=db,
            queue=JobQueue(),
            runs=SqlRunState(db, live_seconds=3600, final_seconds=3600),
            blobs=blobs,
            sandbox=sandbox,
            provider=EchoOcr(blobs),
            shapers={Mode.SKIP: shaper, Mode.FIELDS: shaper},
            scratch=folder / "scratch",
            terms=Terms(**terms),
        )
        yield room_of(tools)


def room_of(tools: Deps, **changes: Any) -> Room:
    """A room with these tools, some of them changed."""
    tools = replace(tools, **changes)
    app = FastAPI()
    app.state.db, app.state.etl, app.state.access = tools.db, tools, FixedCallers(**CALLERS)
    app.router.routes[:] = [RouteIndex([route for router in api.ROUTERS for route in router.routes])]
    install_error_handlers(app)
    return Room(tools=tools, app=app)
