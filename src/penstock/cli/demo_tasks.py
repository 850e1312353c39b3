"""The demo's walk through the tasks room, over HTTP as any client goes it: planned, pulled, worked on, pushed back."""

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
    """The demo's own server did not do what the demo asked for."""

    code = "DEMO_REFUSED"
    message = "{method} {path} answered {status}: {reason}"
    message_zh = "{method} {path} 返回 {status}：{reason}"
    hint = "Run the demo again; if it stays so, something is wrong with this installation."
    hint_zh = "请重新运行演示；如仍如此，则安装有问题。"


class Client:
    """Somebody who calls the demo's server."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str, name: str) -> None:
        self._session = session
        self._url = url
        self._headers = {"X-API-Key": key, "X-Client-Id": name}

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """One request; returns the data of its answer."""
        sent = self._headers | {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.request(method, f"{self._url}/api/v1{path}", json=body, headers=sent) as answer:
            told = await answer.json()
        if not told.get("success"):
            reason = told.get("error", {}).get("message", "")
            raise DemoRefused(method=method, path=path, status=answer.status, reason=reason)
        return told["data"]


async def tour(house: Runtime, port: int, console: Console) -> None:
    """Plan a task, let one agent pull it and push it back, and show what was kept of that."""
    async with house.db.tx(actor="demo") as tx:
        issued = await keys.create(tx, NewKey(name="demo", scope=Scope.ADMIN), by="demo")
    async with aiohttp.ClientSession() as session:
        url, key = f"http://127.0.0.1:{port}", issued.secret
        ann, ada, ben = (Client(session, url, key, name) for name in ("ann", "ada", "ben"))
        await _walk(ann, ada, ben, console)


async def _walk(ann: Client, ada: Client, ben: Client, console: Console) -> None:
    place = f"/projects/{PROJECT}/queues/{QUEUE}/tasks"
    await ann.ask("POST", "/projects", {"project_id": PROJECT, "name": "Letters"})
    await ann.ask("POST", f"/projects/{PROJECT}/queues", {"queue_id": QUEUE, "name": "Proofs"})
    planned = {"taskId": TASK, "name": "Proof-read the letter", "prompt": "Read it twice.", "priority": "high"}
    await ann.ask("POST", place, planned)
    console.print(f"[bold]5.[/] Ann plans a task, {planned['name']!r}, in project {PROJECT!r}.")
    [task] = (await ada.ask("GET", f"{place}/pull?limit=1"))["tasks"]
    rest = (await ben.ask("GET", f"{place}/pull?limit=1"))["pulled_count"]
    console.print(f"   Agent Ada pulls it under a lease until {task['leased_until'][:19]}.")
    console.print(f"   Agent Ben asks too, and gets {rest} tasks: it is in her hands.")
    mine = {"X_Lease_Token": task["lease_token"]}
    status = f"/tasks/{PROJECT}/{QUEUE}/{TASK}/status"
    await ada.ask("PATCH", status, {"status": "running"}, **mine)
    await ada.ask("PATCH", status, {"status": "done", "report": "Two commas were missing."}, **mine)
    done = await ann.ask("GET", f"{place}/{TASK}")
    [pull] = (await ann.ask("GET", f"{place}/{TASK}/pull/history"))["pull_history"]
    feed = (await ann.ask("GET", f"/projects/{PROJECT}/changes"))["changes"]
    console.print(f"   Ada pushes it back: {done['status']}, {done['report']!r}")
    console.print(f"   Its history: pulled by {pull['pulled_by']}, {pull['outcome']} by {pull['pulled_by']}.")
    told = " → ".join(f"{line['kind']} {line['status']}" for line in feed)
    console.print(f"   The project's feed: {told}.")
