"""MinerU over real HTTP on loopback, as its protocols are known: the cloud (v4) and a self-hosted `mineru-api`.

    async with MineruCloud() as cloud:          # or MineruApi()
        cloud.result = zip_of                   # a function from (part's tag, its bytes) to the bytes of a zip
        ...                                     # read with endpoint=cloud.endpoint, api_key=TOKEN
        assert cloud.count("PUT") == 1          # `calls` has every call: method, path, headers, body

Both are scripted in the same way:

    say("POST /file-urls/batch", Said(...))     the next such call gets this answer instead (several queue up)
    restart()                                   every id is forgotten
    steps = [...]                               what successive looks at a job see; the last one stays
    gate                                        an event: results are held back until it is set (it is set at first)
    until("GET /extract-results", times=2)      wait until so many such calls have come

The cloud's steps are `Step(state, done, of, err_code, err_msg)`, and a file that was not put is `waiting-file` before
any of them. `lost_as_404` makes forgotten ids a 404 in place of code -60012; `is_gateway_shaped` is how a bad token is
refused. A PUT with a Content-Type, with a token, or without a length gets 403, as the signature would not match.
`tagged=False` leaves `data_id` out of the entries. `unreachable` makes jobs by address fail with -60008.

The server's steps are (status, queued_ahead); `error` is what a failed job says. `is_old` leaves only `/file_parse`,
and `has_jobs=False` leaves `/health` and `/file_parse`.
"""

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

TOKEN = "token-of-the-account-9f2"
SHUTDOWN_SECONDS = 0.05
LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Call:
    """A received request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    fields: Mapping[str, str] = field(default_factory=dict)  # of a form

    @property
    def asked(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, kw_only=True)
class Said:
    """An exceptional response: a status with JSON or bytes, or a closed connection."""

    status: int = 200
    json: Any = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs_up: bool = False


@dataclass(frozen=True, kw_only=True)
class Step:
    """The status of a job of the cloud."""

    state: str
    done: int = 0
    of: int = 0
    err_code: Any = None
    err_msg: str = ""


CALL = web.RequestKey("call", Call)
USUAL = [
    Step(state="pending"),
    Step(state="running", done=1, of=2),
    Step(state="running", done=2, of=2),
    Step(state="converting"),
    Step(state="done"),
]


class _Server:
    """What both servers share."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.result: Callable[[str, bytes], bytes] = lambda tag, content: b"no zip"
        self.gate = asyncio.Event()
        self.gate.set()
        self.port = 0
        self._script: dict[str, list[Said]] = {}
        self._came = asyncio.Condition()
        self._numbers = itertools.count(1)
        app = web.Application(client_max_size=LARGEST, middlewares=[self._met])
        self.add_routes(app.router)
        self._runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SECONDS)

    def add_routes(self, router: web.UrlDispatcher) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def say(self, call: str, *answers: Said) -> None:
        self._script.setdefault(call, []).extend(answers)

    def heard(self, call: str) -> list[Call]:
        method, _, path = call.partition(" ")
        return [each for each in self.calls if each.method == method and each.path.startswith(path)]

    def count(self, call: str) -> int:
        return len(self.heard(call))

    async def until(self, call: str, *, times: int = 1) -> None:
        async with self._came:
            await self._came.wait_for(lambda: self.count(call) >= times)

    @web.middleware
    async def _met(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        is_form = request.content_type == "multipart/form-data"
        request[CALL] = call = await _of_form(request) if is_form else await _of(request)
        async with self._came:
            self.calls.append(call)
            self._came.notify_all()
        for pattern, answers in self._script.items():
            method, _, path = pattern.partition(" ")
            if answers and request.method == method and request.path.startswith(path):
                return _scripted(request, answers.pop(0))
        answer: web.StreamResponse = await handler(request)
        return answer


class MineruCloud(_Server):
    """The cloud."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = list(USUAL)
        self.steps_of: dict[str, list[Step]] = {}  # of single parts, by their tag
        self.is_gateway_shaped = False
        self.lost_as_404 = False
        self.tagged = True
        self.unreachable = False
        self.puts: dict[str, bytes] = {}  # by the upload's number
        self._batches: dict[str, list[dict[str, Any]]] = {}

    @property
    def endpoint(self) -> str:
        return f"{self.url}/api/v4"

    def restart(self) -> None:
        self._batches.clear()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/api/v4/file-urls/batch", self._make_uploads)
        router.add_post("/api/v4/extract/task/batch", self._take_links)
        router.add_get("/api/v4/extract-results/batch/{id}", self._tell)
        router.add_put("/oss/{number}", self._take_file)
        router.add_get("/cdn/{number}.zip", self._move_on)
        router.add_get("/far/{number}.zip", self._give)

    async def _make_uploads(self, request: web.Request) -> web.Response:
        return self._begun(request, "batch", by_link=False)

    async def _take_links(self, request: web.Request) -> web.Response:
        return self._begun(request, "linked", by_link=True)

    def _begun(self, request: web.Request, name: str, *, by_link: bool) -> web.Response:
        if (refusal := self._refused(request)) is not None:
            return refusal
        files = request[CALL].asked["files"]
        if not 1 <= len(files) <= 50:
            return _envelope(-10002, "files: 1 to 50")
        batch = f"{name}-{next(self._numbers)}"
        entries = [{**file, "number": str(next(self._numbers)), "by_link": by_link, "looks": 0} for file in files]
        self._batches[batch] = entries
        data: dict[str, Any] = {"batch_id": batch}
        if not by_link:
            data["file_urls"] = [f"{self.url}/oss/{entry['number']}?signature=abc" for entry in entries]
        return _envelope(0, "ok", data)

    async def _take_file(self, request: web.Request) -> web.Response:
        headers = request.headers
        if "Content-Type" in headers or "Authorization" in headers or "Content-Length" not in headers:
            return web.Response(status=403, text="<Error>SignatureDoesNotMatch</Error>")
        self.puts[request.match_info["number"]] = request[CALL].body
        return web.Response()

    async def _tell(self, request: web.Request) -> web.Response:
        if (refusal := self._refused(request)) is not None:
            return refusal
        batch = request.match_info["id"]
        if batch not in self._batches:
            if self.lost_as_404:
                return web.json_response({"code": 404, "msg": "not found"}, status=404)
            return _envelope(-60012, "task not found")
        told = [self._entry(entry) for entry in self._batches[batch]]
        return _envelope(0, "ok", {"batch_id": batch, "extract_result": told})

    def _entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        tag = entry.get("data_id", "")
        told: dict[str, Any] = {"file_name": entry.get("name", ""), "err_msg": ""}
        if self.tagged:
            told["data_id"] = tag
        if entry["by_link"] and self.unreachable:
            return told | {"state": "failed", "err_code": -60008, "err_msg": "reading the url timed out"}
        if not entry["by_link"] and entry["number"] not in self.puts:
            return told | {"state": "waiting-file"}
        steps = self.steps_of.get(tag, self.steps)
        step = steps[min(entry["looks"], len(steps) - 1)]
        entry["looks"] += 1
        told |= {"state": step.state, "err_msg": step.err_msg}
        if step.err_code is not None:
            told["err_code"] = step.err_code
        if step.state == "running":
            told["extract_progress"] = {
                "extracted_pages": step.done,
                "total_pages": step.of,
                "start_time": "2026-01-01 08:00:00",
            }
        if step.state == "done":
            told["full_zip_url"] = f"{self.url}/cdn/{entry['number']}.zip"
        return told

    async def _move_on(self, request: web.Request) -> web.Response:
        if "Authorization" in request.headers:
            return web.Response(status=400, text="only one auth mechanism allowed")
        raise web.HTTPFound(f"{self.url}/far/{request.match_info['number']}.zip")

    async def _give(self, request: web.Request) -> web.Response:
        await self.gate.wait()
        number = request.match_info["number"]
        found = [each for entries in self._batches.values() for each in entries if each["number"] == number]
        tag = found[0].get("data_id", "") if found else ""
        return web.Response(body=self.result(tag, self.puts.get(number, b"")), content_type="application/zip")

    def _refused(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization") == f"Bearer {TOKEN}":
            return None
        sent = request.headers.get("Authorization", "")
        if self.is_gateway_shaped:
            body = {"success": False, "msgCode": "A0202", "msg": f"user authentication failed for {sent}"}
            return web.json_response(body, status=401)
        return _envelope("A0202", f"token error: {sent}")


class MineruApi(_Server):
    """A self-hosted server."""

    def __init__(self, *, is_old: bool = False, has_jobs: bool = True) -> None:
        self._is_old = is_old
        self._has_jobs = has_jobs
        super().__init__()
        self.steps: list[tuple[str, int]] = [("pending", 2), ("pending", 1), ("processing", 0), ("completed", 0)]
        self.error = "the model ran out of memory"
        self._jobs: dict[str, dict[str, Any]] = {}

    @property
    def endpoint(self) -> str:
        return self.url

    def restart(self) -> None:
        self._jobs.clear()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/file_parse", self._read_at_once)
        if self._is_old:
            return
        router.add_get("/health", self._tell_health)
        if self._has_jobs:
            router.add_post("/tasks", self._take)
            router.add_get("/tasks/{id}", self._tell)
            router.add_get("/tasks/{id}/result", self._give)

    async def _tell_health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "healthy", "version": "3.4.4", "protocol_version": 2, "queued_tasks": 0})

    async def _take(self, request: web.Request) -> web.Response:
        job = f"5f0c-{next(self._numbers)}"
        self._jobs[job] = {"content": request[CALL].body, "looks": 0}
        body = {"task_id": job, "status": "pending", "queued_ahead": 2, "message": "Task submitted"}
        return web.json_response(body, status=202)

    async def _tell(self, request: web.Request) -> web.Response:
        job = self._jobs.get(request.match_info["id"])
        if job is None:
            return web.json_response({"detail": "Task not found"}, status=404)
        status, ahead = self.steps[min(job["looks"], len(self.steps) - 1)]
        job["looks"] += 1
        error = self.error if status == "failed" else None
        return web.json_response({"status": status, "queued_ahead": ahead, "error": error, "file_names": ["part-0001"]})

    async def _give(self, request: web.Request) -> web.Response:
        await self.gate.wait()
        job = self._jobs.get(request.match_info["id"])
        if job is None:
            return web.json_response({"detail": "Task not found"}, status=404)
        return web.Response(body=self.result("part-0001", job["content"]), content_type="application/zip")

    async def _read_at_once(self, request: web.Request) -> web.Response:
        await self.gate.wait()
        content = self.result("part-0001", request[CALL].body)
        headers = {} if self._is_old else {"X-MinerU-Task-Id": "at-once-1", "X-MinerU-Task-Status": "completed"}
        return web.Response(body=content, content_type="application/zip", headers=headers)


def _envelope(code: Any, msg: str, data: Any = None) -> web.Response:
    return web.json_response({"code": code, "msg": msg, "trace_id": "t-1", "data": data})


def _scripted(request: web.Request, said: Said) -> web.StreamResponse:
    if said.hangs_up:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()
    if said.body is not None:
        return web.Response(status=said.status, body=said.body, headers=said.headers)
    return web.json_response(said.json, status=said.status, headers=said.headers)


async def _of(request: web.Request) -> Call:
    return Call(method=request.method, path=request.path, headers=request.headers, body=await request.read())


async def _of_form(request: web.Request) -> Call:
    content, fields = b"", {}
    async for part in await request.multipart():
        assert not isinstance(part, web.Request)
        name = getattr(part, "name", None) or ""
        body = bytes(await part.read())  # type: ignore[union-attr]  # forms here are not nested
        if name == "files":
            content, fields["filename"] = body, getattr(part, "filename", "") or ""
        else:
            fields[name] = body.decode()
    return Call(method=request.method, path=request.path, headers=request.headers, body=content, fields=fields)
