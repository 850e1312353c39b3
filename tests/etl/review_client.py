"""A client for tests of reviews. The text of a document is the JSON result of its task."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.documents.ocr.provider import Reading, StageContext
from penstock.documents.pages import read_pages
from penstock.documents.postprocessor import ExtractionResult, ExtractionRule
from penstock.etl.domain import Mode
from penstock.kernel.blobs import Blobs
from penstock.kernel.db import Db
from penstock.kernel.json_object import JsonObject
from penstock.kernel.sandbox.call import Sandbox
from tests.etl.api_client import EtlClient, client_with, open_client

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


class JsonPostProcessor:
    """Returns the OCR text, parsed as JSON."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def identity(self, rule: ExtractionRule) -> JsonObject | None:
        return None

    async def extract(
        self, filename: str, reading: Reading, rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        [page] = read_pages((await self._blobs.get(reading.pages_key)).splitlines())
        return ExtractionResult(value=json.loads(page.markdown), strategy="as it is")


@asynccontextmanager
async def open_review_client(db: Db, folder: Path, sandbox: Sandbox) -> AsyncIterator["ReviewClient"]:
    """A review client with a rule owned by anna."""
    async with open_client(db, folder) as client:
        post_processor = JsonPostProcessor(client.deps.blobs)
        client = client_with(client.deps, sandbox=sandbox, post_processors=dict.fromkeys(Mode, post_processor))
        yield ReviewClient(client, await new_rule(client))


async def new_rule(client: EtlClient, *, key: str = "anna", schema: object = None) -> int:
    """Create a rule for invoices, or with another schema; returns its id."""
    body = {"name": "Bills", "postprocess_mode": "llm", "json_schema": INVOICE if schema is None else schema}
    rule_id: int = (await client.json("POST", "/rules", body, key=key))["rule_id"]
    return rule_id


class ReviewClient:
    """Completes tasks and reviews their results."""

    def __init__(self, client: EtlClient, rule_id: int) -> None:
        self.client = client
        self.rule_id = rule_id

    async def completed(self, value: object = None, *, key: str = "anna", **more: Any) -> int:
        """A completed task with this result, else BILL; returns its id."""
        text = json.dumps(BILL if value is None else value)
        task_id = await self.client.submit(text, key=key, **{"rule_id": self.rule_id, **more})
        await self.client.work()
        return task_id

    async def correct(self, task_id: int, *given: tuple[str, object], key: str = "anna", **more: Any) -> Any:
        """Correct values; returns the response."""
        return await self.client.json("POST", f"/tasks/{task_id}/corrections", review_body(*given, **more), key=key)

    async def refused(self, task_id: int, *given: tuple[str, object], key: str = "anna", **more: Any) -> Any:
        """Send corrections that are rejected; returns the reason of each field."""
        answer = await self.client.call("POST", f"/tasks/{task_id}/corrections", review_body(*given, **more), key=key)
        assert (answer.status, answer.json["code"]) == (400, "VALIDATION"), answer.body
        return {error["field"]: error["reason"] for error in answer.json["errors"]}

    async def result(self, task_id: int) -> Any:
        """The corrected result."""
        return await self.client.json("GET", f"/tasks/{task_id}/result?corrected=true")

    async def listed(self, task_id: int, *, key: str = "anna") -> Any:
        """The corrections of a task, newest first."""
        return (await self.client.json("GET", f"/tasks/{task_id}/corrections", key=key))["corrections"]

    async def accuracy(self, *, key: str = "anna", query: str = "", rule_id: int | None = None) -> Any:
        """The accuracy of the rule."""
        number = self.rule_id if rule_id is None else rule_id
        return await self.client.json("GET", f"/rules/{number}/accuracy{query}", key=key)


def review_body(*given: tuple[str, object], **more: Any) -> dict[str, Any]:
    """A request body with corrections."""
    return {"corrections": [{"pointer": pointer, "value": value} for pointer, value in given], **more}
