"""The app: its routes, its document, and who may call it from a browser."""

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
from tests.fakes.authenticators import FixedCallers
from tests.kernel.http.asking import ask

SHOP = "https://shop.example"


class Order(BaseModel):
    """Something to be sent in."""

    amount: int


def shop() -> APIRouter:
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
def app(house: Runtime) -> App:
    made = build_app(house, routers=[health.router, shop()])
    made.state.access = FixedCallers(ann=Caller(name="ann", user_id=1, scope=Scope.READ))
    return made


def operations(app: App) -> dict[tuple[str, str], dict[str, Any]]:
    paths = app.openapi()["paths"]
    return {(method, path): operation for path, item in paths.items() for method, operation in item.items()}


class TestRoutes:
    async def test_routers_are_served_with_the_parts_they_look_for(self, app: App):
        answer = await ask(app, "GET", "/api/v1/orders/7", x_api_key="ann")
        assert answer.json == {"id": 7, "by": "ann"}
        assert (await ask(app, "GET", "/api/v1/orders/7")).status == 401

    async def test_who_called_stands_in_the_figures_by_template_only(self, app: App):
        await ask(app, "GET", "/api/v1/orders/7", x_api_key="ann")
        figures = (await ask(app, "GET", "/metrics")).body
        assert b'route="/api/v1/orders/{order_id}"' in figures
        assert b"ann" not in figures

    async def test_a_slash_too_many_is_not_sent_elsewhere(self, app: App):
        assert (await ask(app, "GET", "/livez/")).status == 404


class TestOpenApi:
    async def test_the_document_is_served(self, app: App):
        answer = await ask(app, "GET", "/api/v1/openapi.json")
        assert answer.status == 200
        assert answer.json == app.openapi()
        assert answer.json["info"]["title"] == "Penstock"

    async def test_every_operation_says_who_may_call_it_and_what_it_is(self, app: App):
        told = {(method, path): operation.get("x-scope") for (method, path), operation in operations(app).items()}
        assert told == {
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

    async def test_so_does_every_operation_that_is_really_served(self, house: Runtime):
        found = operations(build_app(house))
        assert len(found) > 10
        assert not [place for place, operation in found.items() if not operation.get("x-scope")]
        assert not [place for place, operation in found.items() if not operation.get("summary")]
        assert not [place for place, operation in found.items() if not {"500", "default"} & set(operation["responses"])]

    @pytest.mark.parametrize(
        ("method", "path", "statuses"),
        [
            ("get", "/livez", {"200", "500", "503"}),
            ("get", "/api/v1/orders", {"200", "500", "503"}),
            ("get", "/api/v1/orders/{order_id}", {"200", "400", "401", "403", "404", "429", "500", "503"}),
            ("post", "/api/v1/orders", {"200", "400", "401", "403", "408", "413", "429", "500", "503"}),
            ("delete", "/api/v1/orders/{order_id}", {"200", "default"}),
        ],
    )
    async def test_every_operation_lists_its_problems(self, app: App, method: str, path: str, statuses: set[str]):
        assert set(operations(app)[method, path]["responses"]) == statuses

    async def test_problems_are_described_once_and_the_frameworks_own_errors_not_at_all(self, app: App):
        document = app.openapi()
        problem = document["paths"]["/api/v1/orders"]["post"]["responses"]["413"]["content"]
        assert problem == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        assert "Problem" in document["components"]["schemas"]
        assert not {"HTTPValidationError", "ValidationError"} & set(document["components"]["schemas"])

    async def test_the_described_problem_is_the_one_that_is_answered(self, app: App):
        answer = await ask(app, "GET", "/nope")
        schema = app.openapi()["components"]["schemas"]["Problem"]
        assert set(schema["required"]) == set(answer.json)
        assert set(answer.json) <= set(schema["properties"])


class TestOtherOrigins:
    async def test_no_page_of_another_origin_may_call(self, app: App):
        answer = await ask(app, "GET", "/livez", origin=SHOP)
        assert "access-control-allow-origin" not in answer.headers
        asked = {"origin": SHOP, "access_control_request_method": "GET"}
        assert (await ask(app, "OPTIONS", "/livez", **asked)).status == 405

    async def test_those_that_are_named_may_and_can_read_refusals(self, settings: Settings):
        async with open_runtime(replace(settings, cors_origins=f" {SHOP} , https://b.example")) as house:
            app = build_app(house)
            asked = {"origin": SHOP, "access_control_request_method": "GET"}
            asked["access_control_request_headers"] = "X-API-Key"
            before = await ask(app, "OPTIONS", "/livez", **asked)
            assert before.status == 200
            assert before.headers["access-control-allow-origin"] == SHOP
            refused = await ask(app, "GET", "/livez?api_key=hunter2hunter2", origin=SHOP)
            assert refused.status == 400
            assert refused.headers["access-control-allow-origin"] == SHOP
            assert "X-Request-Id" in refused.headers["access-control-expose-headers"]
            stranger = await ask(app, "GET", "/livez", origin="https://evil.example")
            assert "access-control-allow-origin" not in stranger.headers
