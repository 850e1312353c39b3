"""The OpenAPI document: the framework's, plus the errors and security of every operation.

Errors are RFC 9457 problems, so each operation lists the statuses that it can respond with. An operation that describes
its errors itself (`default`) is left unchanged.
"""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from penstock.kernel.http.problems import PROBLEM

PUBLIC = "public"
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
UNUSED_SCHEMAS = ("HTTPValidationError", "ValidationError")  # of the framework's 422, which is never sent


def describe(app: FastAPI, routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=routes)
    for path, operation in _operations(document):
        _add_problems(path, operation)
        if operation.get("x-scope") not in (None, PUBLIC):
            operation["security"] = [{name: []} for name in SECURITY]
    components = document.setdefault("components", {})
    components["securitySchemes"] = SECURITY
    schemas = components.setdefault("schemas", {})
    for name in UNUSED_SCHEMAS:
        schemas.pop(name, None)
    schemas["Problem"] = PROBLEM_SCHEMA
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for operation in item.values():
            yield path, operation


def _add_problems(path: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    if "default" in responses:
        return
    for status in _statuses(path, operation):
        described = {"description": HTTPStatus(status).phrase, "content": {PROBLEM: {"schema": {"$ref": SCHEMA}}}}
        responses.setdefault(str(status), described)


def _statuses(path: str, operation: dict[str, Any]) -> Iterator[int]:
    if "requestBody" in operation:
        yield from (400, 408, 413)
    if operation.get("parameters"):
        yield 400
    if operation.get("x-scope") != PUBLIC:
        yield from (401, 403, 429)
    if "{" in path:
        yield 404
    yield from (500, 503)
