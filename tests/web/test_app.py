"""The app: its routes, its OpenAPI document, and CORS."""

from dataclasses import replace
from typing import Any

import pytest
from fastapi import APIRouter, Request
from pydantic import BaseModel

from penstock.access.domain import Caller, Scope
from penstock.access.guard import public, requires
from penstock.settings import Settings
from penstock.web import health
from penstock.web.app import App, build_app
from penstock.wiring import Runtime, open_runtime
from tests.asgi import send_request
from tests.fakes.authenticators import FixedCallers

ORIGIN = "https://shop.example"


class Order(BaseModel):
    """A request body."""

    amount: int


def orders() -> APIRouter:
    router = APIRouter(prefix="/api/v1/orders", tags=["orders"])

    @router.get("/{order_id}", summary="Read an order", **requires(Scope.READ))
    async def read(request: Request, order_id: int) -> dict[str, Any]:
        return {"id": order_id, "by": request.state.caller.name}

    @router.post("", summary="Order", **requires(Scope.WRITE))
    async def order(order: Order) -> Order:
        return order

    @router.get("", summary="What can be ordered", **public())
    async def offer() -> list[str]:
        return ["tea"]

    @router.delete(
        "/{order_id}", responses={"default": {"description": "In a shape of its own."}}, **requires(Scope.ADMIN)
    )
    async def cancel(order_id: int) -> None:
        """Cancel an order."""

    return router


@pytest.fixture
def app(runtime: Runtime) -> App:
    made = build_app(runtime, routers=[health.router, orders()])
    made.state.access = FixedCallers(ann=Caller(name="ann", user_id=1, scope=Scope.READ))
    return made


def operations(app: App) -> dict[tuple[str, str], dict[str, Any]]:
    paths = app.openapi()["paths"]
    return {(method, path): operation for path, item in paths.items() for method, operation in item.items()}


class TestRoutes:
    async def test_routers_are_served_with_their_dependencies(self, app: App):
        answer = await send_request(app, "GET", "/api/v1/orders/7", x_api_key="ann")
        assert answer.json == {"id": 7, "by": "ann"}
        assert (await send_request(app, "GET", "/api/v1/orders/7")).status == 401

    async def test_metrics_have_the_path_template_and_no_caller(self, app: App):
        await send_request(app, "GET", "/api/v1/orders/7", x_api_key="ann")
        metrics = (await send_request(app, "GET", "/metrics")).body
        assert b'route="/api/v1/orders/{order_id}"' in metrics
        assert b"ann" not in metrics

    async def test_a_trailing_slash_is_not_redirected(self, app: App):
        assert (await send_request(app, "GET", "/livez/")).status == 404


class TestOpenApi:
    async def test_the_document_is_served(self, app: App):
        answer = await send_request(app, "GET", "/api/v1/openapi.json")
        assert answer.status == 200
        assert answer.json == app.openapi()
        assert answer.json["info"]["title"] == "Penstock"

    async def test_every_operation_has_a_scope_and_a_summary(self, app: App):
        scopes = {(method, path): operation.get("x-scope") for (method, path), operation in operations(app).items()}
        assert scopes == {
            ("get", "/api/v1/health"): "public",
            ("get", "/livez"): "public",
            ("get", "/readyz"): "public",
            ("get", "/metrics"): "public",
            ("get", "/api/v1/orders/{order_id}"): "read",
            ("post", "/api/v1/orders"): "write",
            ("get", "/api/v1/orders"): "public",
            ("delete", "/api/v1/orders/{order_id}"): "admin",
        }
        assert all(operation["summary"] for operation in operations(app).values())

    async def test_so_does_every_operation_of_the_real_app(self, runtime: Runtime):
        found = operations(build_app(runtime))
        assert len(found) > 10
        assert not [place for place, operation in found.items() if not operation.get("x-scope")]
        assert not [place for place, operation in found.items() if not operation.get("summary")]
        assert not [place for place, operation in found.items() if not {"500", "default"} & set(operation["responses"])]

    @pytest.mark.parametrize(
        ("method", "path", "statuses"),
        [
            ("get", "/livez", {"200", "400", "414", "500", "503"}),
            ("get", "/api/v1/orders", {"200", "400", "414", "500", "503"}),
            ("get", "/api/v1/orders/{order_id}", {"200", "400", "401", "403", "404", "414", "429", "500", "503"}),
            ("post", "/api/v1/orders", {"200", "400", "401", "403", "408", "413", "414", "429", "500", "503"}),
            ("delete", "/api/v1/orders/{order_id}", {"200", "default"}),
        ],
    )
    async def test_every_operation_lists_its_error_statuses(self, app: App, method: str, path: str, statuses: set[str]):
        assert set(operations(app)[method, path]["responses"]) == statuses

    async def test_problems_are_described_once_and_the_frameworks_own_errors_not_at_all(self, app: App):
        document = app.openapi()
        problem = document["paths"]["/api/v1/orders"]["post"]["responses"]["413"]["content"]
        assert problem == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        assert "Problem" in document["components"]["schemas"]
        assert not {"HTTPValidationError", "ValidationError"} & set(document["components"]["schemas"])

    async def test_the_described_problem_is_the_one_that_is_answered(self, app: App):
        answer = await send_request(app, "GET", "/nope")
        schema = app.openapi()["components"]["schemas"]["Problem"]
        assert set(schema["required"]) == set(answer.json)
        assert set(answer.json) <= set(schema["properties"])


class TestCors:
    async def test_other_origins_are_refused_by_default(self, app: App):
        answer = await send_request(app, "GET", "/livez", origin=ORIGIN)
        assert "access-control-allow-origin" not in answer.headers
        preflight = {"origin": ORIGIN, "access_control_request_method": "GET"}
        assert (await send_request(app, "OPTIONS", "/livez", **preflight)).status == 405

    async def test_configured_origins_may_call_and_read_errors(self, settings: Settings):
        async with open_runtime(replace(settings, cors_origins=f" {ORIGIN} , https://b.example")) as runtime:
            app = build_app(runtime)
            preflight = {"origin": ORIGIN, "access_control_request_method": "GET"}
            preflight["access_control_request_headers"] = "X-API-Key"
            allowed = await send_request(app, "OPTIONS", "/livez", **preflight)
            assert allowed.status == 200
            assert allowed.headers["access-control-allow-origin"] == ORIGIN
            error = await send_request(app, "GET", "/livez?api_key=hunter2hunter2", origin=ORIGIN)
            assert error.status == 400
            assert error.headers["access-control-allow-origin"] == ORIGIN
            assert "X-Request-Id" in error.headers["access-control-expose-headers"]
            other = await send_request(app, "GET", "/livez", origin="https://evil.example")
            assert "access-control-allow-origin" not in other.headers
