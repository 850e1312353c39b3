"""The tasks step: over HTTP, as any client would, a task is planned, pulled, worked on and pushed."""

from typing import Any

import aiohttp
from rich.console import Console

from penstock.access import keys
from penstock.access.domain import NewKey, Scope
from penstock.kernel.errors import Unavailable
from penstock.wiring import Runtime

PROJECT = "letters"
QUEUE = "proofs"
TASK = "proof-read"


class DemoRefused(Unavailable):
    """The demo's server refused a request of the demo."""

    code = "DEMO_REFUSED"
    message = "{method} {path} answered {status}: {reason}"
    message_zh = "{method} {path} 返回 {status}：{reason}"
    hint = "Run the demo again. If it fails again, the installation is broken."
    hint_zh = "请重新运行演示；如果再次失败，则安装已损坏。"


class TaskClient:
    """An HTTP client of the tasks API under one client id."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str, client_id: str) -> None:
        self._session = session
        self._url = url
        self._headers = {"X-API-Key": key, "X-Client-Id": client_id}

    async def request(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Send one request; returns the data of its response."""
        sent = self._headers | {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.request(method, f"{self._url}/api/v1{path}", json=body, headers=sent) as response:
            reply = await response.json()
        if not reply.get("success"):
            reason = reply.get("error", {}).get("message", "")
            raise DemoRefused(method=method, path=path, status=response.status, reason=reason)
        return reply["data"]


async def run_step(runtime: Runtime, port: int, console: Console) -> None:
    """Plan a task, have an agent pull and push it, and show its history."""
    async with runtime.db.tx(actor="demo") as tx:
        issued = await keys.create(tx, NewKey(name="demo", scope=Scope.ADMIN), by="demo")
    async with aiohttp.ClientSession() as session:
        url, key = f"http://127.0.0.1:{port}", issued.secret
        ann, ada, ben = (TaskClient(session, url, key, name) for name in ("ann", "ada", "ben"))
        await _plan_pull_push(ann, ada, ben, console)


async def _plan_pull_push(ann: TaskClient, ada: TaskClient, ben: TaskClient, console: Console) -> None:
    tasks = f"/projects/{PROJECT}/queues/{QUEUE}/tasks"
    await ann.request("POST", "/projects", {"project_id": PROJECT, "name": "Letters"})
    await ann.request("POST", f"/projects/{PROJECT}/queues", {"queue_id": QUEUE, "name": "Proofs"})
    planned = {"taskId": TASK, "name": "Proof-read the letter", "prompt": "Read it twice.", "priority": "high"}
    await ann.request("POST", tasks, planned)
    console.print(f"[bold]5.[/] Ann plans a task, {planned['name']!r}, in project {PROJECT!r}.")
    [task] = (await ada.request("GET", f"{tasks}/pull?limit=1"))["tasks"]
    others = (await ben.request("GET", f"{tasks}/pull?limit=1"))["pulled_count"]
    console.print(f"   Agent Ada pulls it under a lease until {task['leased_until'][:19]}.")
    console.print(f"   Agent Ben pulls too and gets {others} tasks: Ada holds the lease.")
    lease = {"X_Lease_Token": task["lease_token"]}
    status = f"/tasks/{PROJECT}/{QUEUE}/{TASK}/status"
    await ada.request("PATCH", status, {"status": "running"}, **lease)
    await ada.request("PATCH", status, {"status": "done", "report": "Two commas were missing."}, **lease)
    done = await ann.request("GET", f"{tasks}/{TASK}")
    [pull] = (await ann.request("GET", f"{tasks}/{TASK}/pull/history"))["pull_history"]
    changes = (await ann.request("GET", f"/projects/{PROJECT}/changes"))["changes"]
    console.print(f"   Ada pushes the result: {done['status']}, {done['report']!r}")
    console.print(f"   Its history: pulled by {pull['pulled_by']}, {pull['outcome']} by {pull['pulled_by']}.")
    feed = " → ".join(f"{change['kind']} {change['status']}" for change in changes)
    console.print(f"   The project's change feed: {feed}.")
