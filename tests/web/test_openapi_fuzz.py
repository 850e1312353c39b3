"""Random requests to every route, good and bad: whatever they are told, the OpenAPI document says so."""

import json
import random
from typing import Any
from urllib.parse import quote

from penstock.access import keys
from penstock.access.domain import NewKey, Scope
from penstock.web.app import build_app
from penstock.wiring import Runtime
from tests.asgi import call
from tests.contract import Contract

STREAMS = {"/api/v1/events"}  # never ends
ROUNDS = 5
VALUES: list[Any] = [
    *(None, True, 0, 1, -1, 2**63, 2**70, 1.5, "", "x", "1", "pending", "high", "2026-01-01T00:00:00Z", "9" * 400),
    *("\x01", "中文", "a/b", "%", [], [None], ["x"], {}, {"a": 1}),
]
BODIES = [b"", b"{", b"[]", b'"x"', b"null", b"\xff", b'{"a": NaN}']


class Requests:
    """Makes requests for operations of an OpenAPI document."""

    def __init__(self, document: dict[str, Any], seed: int) -> None:
        self._document = document
        self._random = random.Random(seed)

    def target(self, path: str, operation: dict[str, Any]) -> str:
        """The path with its parameters filled in, and some of the query, perhaps with a parameter too many."""
        query = []
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path":
                path = path.replace(f"{{{parameter['name']}}}", quote(self._text(), safe=""))
            elif parameter["in"] == "query" and self._random.random() < 0.5:
                query.append(f"{parameter['name']}={quote(self._text())}")
        if self._random.random() < 0.1:
            query.append("bogus=1")
        return f"{path}?{'&'.join(query)}" if query else path

    def body(self, operation: dict[str, Any]) -> object:
        """A body that fits its schema in part, or not at all."""
        if "requestBody" not in operation:
            return None
        if self._random.random() < 0.2:
            return self._random.choice(BODIES)
        schema = next(iter(operation["requestBody"]["content"].values())).get("schema", {})
        return self._value(schema, 4)

    def _value(self, schema: dict[str, Any], depth: int) -> Any:
        if "$ref" in schema:
            schema = self._document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if not depth or self._random.random() < 0.1:
            return self._random.choice(VALUES)
        if "anyOf" in schema:
            return self._value(self._random.choice(schema["anyOf"]), depth)
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        if "properties" in schema:
            kept = {
                name: one
                for name, one in schema["properties"].items()
                if name in schema.get("required", ()) or self._random.random() < 0.5
            }
            return {name: self._value(one, depth - 1) for name, one in kept.items()}
        if schema.get("type") == "array":
            return [self._value(schema.get("items", {}), depth - 1) for _ in range(self._random.randrange(3))]
        return self._random.choice(["x", "t1", 1, 5] if schema.get("type") in ("string", "integer") else VALUES)

    def _text(self) -> str:
        value = self._random.choice(VALUES)
        return (value if isinstance(value, str) else json.dumps(value)) or "x"


async def test_whatever_is_sent_the_answer_is_documented(runtime: Runtime):
    app = build_app(runtime)
    async with runtime.db.tx(actor="test") as tx:
        admin = await keys.create(tx, NewKey(name="admin", scope=Scope.ADMIN), by="test")
    document, requests = app.openapi(), Requests(app.openapi(), seed=7)
    contract, statuses = Contract(document), set[int]()
    for _ in range(ROUNDS):
        for path, item in document["paths"].items():
            for method, operation in item.items():
                if path in STREAMS:
                    continue
                target, body = requests.target(path, operation), requests.body(operation)
                response = await call(app, method.upper(), target, body, headers=[("x-api-key", admin.secret)])
                contract.check(method.upper(), path, response)
                assert response.status != 500, (method, target, body, response.body)
                statuses.add(response.status)
    assert {200, 400, 404} <= statuses
