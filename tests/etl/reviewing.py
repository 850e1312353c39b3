"""A room whose documents are the results that are wanted, for tests of what people say about results."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.documents.ocr.provider import Desk, Reading
from penstock.documents.pages import read_pages
from penstock.documents.postprocessor import Shaped, ShapeRule
from penstock.etl import overlay, schemas
from penstock.etl.domain import Mode
from penstock.kernel.blobs import Blobs
from penstock.kernel.db import Db
from penstock.kernel.json_object import JsonObject
from penstock.kernel.sandbox.call import Sandbox
from tests.etl.asking import Room, open_room, room_of

INVOICE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "number": {"type": "string", "minLength": 1},
        "total": {"type": "number"},
        "paid": {"type": "boolean"},
        "seller": {"type": "object", "properties": {"name": {"type": "string"}, "city": {"type": "string"}}},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "a/b~c": {"type": "string"},
    },
    "required": ["number"],
    "$defs": {
        "item": {
            "type": "object",
            "properties": {"what": {"type": "string"}, "price": {"type": "number"}, "sku": {"type": "string"}},
        }
    },
}
BILL: dict[str, Any] = {
    "number": "2026-17",
    "total": 90.0,
    "paid": False,
    "seller": {"name": "Mill Street"},
    "items": [{"what": "Paper", "price": 40.0}, {"what": "Ink", "price": 50.0}],
}


class ShaperOfJson:
    """Takes what was read for the result itself."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def identity(self, rule: ShapeRule) -> JsonObject | None:
        return None

    async def shape(self, filename: str, reading: Reading, rule: ShapeRule, desk: Desk) -> Shaped:
        [page] = read_pages((await self._blobs.get(reading.pages_key)).splitlines())
        return Shaped(value=json.loads(page.markdown), strategy="as it is")


@asynccontextmanager
async def open_reviewing(db: Db, folder: Path) -> AsyncIterator["Reviewing"]:
    """The room, with a rule of anna's."""
    preload = (*schemas.PRELOAD, *overlay.PRELOAD)
    async with open_room(db, folder) as room, Sandbox(preload=preload) as sandbox:
        shaper = ShaperOfJson(room.tools.blobs)
        room = room_of(room.tools, sandbox=sandbox, shapers=dict.fromkeys(Mode, shaper))
        yield Reviewing(room, await new_rule(room))


async def new_rule(room: Room, *, key: str = "anna", schema: object = None) -> int:
    """A rule for bills, or for another schema."""
    body = {"name": "Bills", "postprocess_mode": "llm", "json_schema": INVOICE if schema is None else schema}
    rule_id: int = (await room.json("POST", "/rules", body, key=key))["rule_id"]
    return rule_id


class Reviewing:
    """A room in which people look at results."""

    def __init__(self, room: Room, rule_id: int) -> None:
        self.room = room
        self.rule_id = rule_id

    async def completed(self, value: object = None, *, key: str = "anna", **more: Any) -> int:
        """A task whose result is this, else BILL; its number."""
        text = json.dumps(BILL if value is None else value)
        task_id = await self.room.submit(text, key=key, **{"rule_id": self.rule_id, **more})
        await self.room.work()
        return task_id

    async def correct(self, task_id: int, *given: tuple[str, object], key: str = "anna", **more: Any) -> Any:
        """Say what these values should be; what was answered."""
        return await self.room.json("POST", f"/tasks/{task_id}/corrections", said(*given, **more), key=key)

    async def refused(self, task_id: int, *given: tuple[str, object], key: str = "anna", **more: Any) -> Any:
        """Say what is not taken: what is told of each field."""
        answer = await self.room.call("POST", f"/tasks/{task_id}/corrections", said(*given, **more), key=key)
        assert (answer.status, answer.json["code"]) == (400, "VALIDATION"), answer.body
        return {error["field"]: error["reason"] for error in answer.json["errors"]}

    async def result(self, task_id: int) -> Any:
        """The corrected result."""
        return await self.room.json("GET", f"/tasks/{task_id}/result?corrected=true")

    async def listed(self, task_id: int, *, key: str = "anna") -> Any:
        """What was said about a task's results, the newest first."""
        return (await self.room.json("GET", f"/tasks/{task_id}/corrections", key=key))["corrections"]

    async def accuracy(self, *, key: str = "anna", query: str = "", rule_id: int | None = None) -> Any:
        """How good the rule is."""
        number = self.rule_id if rule_id is None else rule_id
        return await self.room.json("GET", f"/rules/{number}/accuracy{query}", key=key)


def said(*given: tuple[str, object], **more: Any) -> dict[str, Any]:
    """A body with corrections."""
    return {"corrections": [{"pointer": pointer, "value": value} for pointer, value in given], **more}
