"""The OpenAPI document: the framework's, plus the errors and security of every operation.

Each operation lists the statuses that it can respond with, and their format: an RFC 9457 problem, or the envelope where
the operation has it as `default`. An operation whose `default` has no format describes its errors itself.
"""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from itertools import chain
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from penstock.kernel.http.problems import PROBLEM

PUBLIC = "public"
IDEMPOTENCY_KEY = "Idempotency-Key"  # refused with 422 if it was used for another request
SCHEMA = "#/components/schemas/Problem"
FIELD = {
    "type": "object",
    "required": ["field", "reason"],
    "properties": {"field": {"type": "string"}, "reason": {"type": "string"}},
}
PROBLEM_SCHEMA = {
    "title": "Problem",
    "description": "An error (RFC 9457). `code` is stable; `detail` and `hint` are English or Chinese.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "retryable", "hint", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "description": "Listed in docs/reference/errors.md."},
        "retryable": {"type": "boolean", "description": "Whether the same request may succeed later."},
        "hint": {"type": "string", "description": "How to fix it."},
        "request_id": {"type": "string", "description": "Identifies this request in the log."},
        "errors": {"type": "array", "items": FIELD, "description": "With VALIDATION: every invalid field."},
    },
}
SECURITY = {
    "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "Bearer": {"type": "http", "scheme": "bearer", "description": "An API key, a console login or a JWT."},
}
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
UNUSED_SCHEMAS = ("HTTPValidationError", "ValidationError")  # of the framework's 422, which is never sent


def describe(app: FastAPI, routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=routes)
    for path, method, operation in _operations(document):
        _add_errors(path, method, operation)
        if operation.get("x-scope") not in (None, PUBLIC):
            operation["security"] = [{name: []} for name in SECURITY]
    components = document.setdefault("components", {})
    components["securitySchemes"] = SECURITY
    schemas = components.setdefault("schemas", {})
    for name in UNUSED_SCHEMAS:
        schemas.pop(name, None)
    schemas["Problem"] = PROBLEM_SCHEMA
    _as_json_schema(document)
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def _add_errors(path: str, method: str, operation: dict[str, Any]) -> None:
    """List the statuses of an operation's errors, in the format of its errors: problems or the envelope."""
    responses = operation["responses"]
    responses.pop("422", None)
    enveloped = responses.get("default", {}).get("content", {})
    if "default" in responses and not enveloped:
        return  # it describes its errors itself
    content = enveloped or {PROBLEM: {"schema": {"$ref": SCHEMA}}}
    more = _envelope_statuses(path, method, operation) if enveloped else ()
    for status in chain(_statuses(path, operation), more):
        responses.setdefault(str(status), {"description": HTTPStatus(status).phrase})
    for status, described in responses.items():
        if status.isdigit() and int(status) >= HTTPStatus.BAD_REQUEST:
            described.setdefault("content", content)


def _statuses(path: str, operation: dict[str, Any]) -> Iterator[int]:
    yield from (400, 414)  # an unknown query parameter, a query string that is not UTF-8 or too long
    if "requestBody" in operation:
        yield from (408, 413)
    if any(parameter["name"] == IDEMPOTENCY_KEY for parameter in operation.get("parameters", ())):
        yield from (409, 422)
    if operation.get("x-scope") != PUBLIC:
        yield from (401, 403, 429)
    if "{" in path:
        yield 404
    yield from (500, 503)


def _envelope_statuses(path: str, method: str, operation: dict[str, Any]) -> Iterator[int]:
    """Statuses of the tasks API that depend on the state of a project, queue or task; a query may name a project."""
    if operation.get("parameters"):
        yield 404
    if "requestBody" in operation:
        yield from (401, 403, 429)  # also of a login, which is public
    if method != "get" or "{task_id}" in path:
        yield from (404, 409, 410)


def _as_json_schema(schema: Any) -> None:
    """Write bounds as JSON Schema does. Behind a validator of ours, Pydantic leaves them in its own words."""
    if isinstance(schema, list):
        for one in schema:
            _as_json_schema(one)
    elif isinstance(schema, dict):
        for name, keyword in BOUNDS.items():
            if isinstance(schema.get(name), int | float):
                schema[keyword] = schema.pop(name)
        for one in schema.values():
            _as_json_schema(one)
