"""The OpenAPI document as a contract: a response must have a documented status, media type and shape.

The test clients of the modules check every response that they get, so that the document is compared with all behaviour
that is tested, not with a few calls of its own. A generated client relies on the same document and on nothing else.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jsonschema_rs
from fastapi import FastAPI
from starlette.routing import BaseRoute, Match

from penstock.kernel.http.routes import RouteIndex
from penstock.web.openapi import describe
from tests.asgi import Response

JSON = ("application/json", "application/problem+json")
NO_BODY = (204, 304)


class Contract:
    """Checks responses against an OpenAPI document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._validators: dict[tuple[str, str], jsonschema_rs.Draft202012Validator] = {}

    def check(self, method: str, path: str, response: Response) -> None:
        """Fail if the response of an operation, named by its method and path template, is not as documented."""
        operation = self._document["paths"].get(path, {}).get(method.lower())
        if operation is None:  # HEAD, and what is left out of the document on purpose
            return
        place = f"{method} {path} {response.status}"
        documented = operation["responses"].get(str(response.status))
        assert documented is not None, f"{place} is not documented: {response.body[:500]!r}"
        kind = response.headers.get("content-type", "").partition(";")[0]
        if method == "HEAD" or response.status in NO_BODY or kind not in JSON:
            return
        schema = documented.get("content", {}).get(kind, {}).get("schema")
        assert schema is not None, f"{place} is documented without {kind}"
        errors = self._validator(place, kind, schema).iter_errors(json.loads(response.body))
        problems = [f"{error.instance_path}: {error.message}" for error in errors]
        assert not problems, f"{place}: {problems[:5]} in {response.body[:500]!r}"

    def _validator(self, place: str, kind: str, schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
        if (place, kind) not in self._validators:
            whole = {**schema, "components": self._document["components"]}
            self._validators[place, kind] = jsonschema_rs.Draft202012Validator(whole)
        return self._validators[place, kind]


class RouteContract:
    """Checks responses of these routes. The document is built when the first response is checked."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._routes = routes

    @cached_property
    def _contract(self) -> Contract:
        return Contract(describe(FastAPI(title="Contract"), self._routes))

    @cached_property
    def _index(self) -> RouteIndex:
        return RouteIndex(self._routes)

    def check(self, method: str, target: str, response: Response) -> None:
        """Fail if the response is not as documented. Paths and methods that do not exist are not documented."""
        path = target.partition("?")[0]
        scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "root_path": ""}
        match, found = self._index.matches(scope)
        if match is Match.FULL:
            self._contract.check(method, found["route"].path_format, response)
