"""The route index finds the routes that the framework would find."""

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from penstock.kernel.http.routes import RouteIndex
from tests.asgi import call, send_request

PATHS = [
    ("GET", "/"),
    ("GET", "/things"),
    ("GET", "/things/"),
    ("POST", "/things"),
    ("GET", "/things/{id}"),
    ("GET", "/things/special"),  # never reached: the one before takes it
    ("DELETE", "/things/special"),
    ("GET", "/things/{id}/pages/{page}"),
    ("GET", "/other/first"),
    ("GET", "/other/{id}"),
    ("GET", "/files/{path:path}"),
    ("HEAD", "/files/{path:path}"),
    ("GET", "/v{number}/x"),
]
REQUESTED = [
    "/", "/things", "/things/", "/things/7", "/things/special", "/things/7/pages/3", "/things/7/pages/", "/other/first",
    "/other/x", "/files/a/b/c", "/files/", "/v1/x", "/v1/", "//things", "/things//", "/nope", "/things/7/nope", "*", "",
    "/" * 60_000, "/things/" + "a/" * 20_000,
]  # fmt: skip


def router() -> APIRouter:
    made = APIRouter()
    for method, path in PATHS:

        async def tell(request: Request, said: str = f"{method} {path}") -> PlainTextResponse:
            return PlainTextResponse(f"{said} {sorted(request.path_params.items())}")

        made.add_api_route(path, tell, methods=[method], response_class=PlainTextResponse)
    return made


async def test_the_same_route_answers_as_without_an_index():
    plain, indexed = FastAPI(redirect_slashes=False), FastAPI(redirect_slashes=False)
    plain.router.routes[:] = router().routes
    indexed.router.routes[:] = [RouteIndex(router().routes)]
    for method in ("GET", "POST", "DELETE", "HEAD"):
        for path in REQUESTED:
            ours, frameworks = await send_request(indexed, method, path), await send_request(plain, method, path)
            assert (ours.status, ours.body) == (frameworks.status, frameworks.body), (method, path[:20])


async def test_a_route_of_the_framework_itself_is_found_too():
    async def tell(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.scope["route"].path)

    app = FastAPI()
    app.router.routes[:] = [RouteIndex([Route("/plain", tell)])]
    assert (await send_request(app, "GET", "/plain")).body == b"/plain"


def test_has_tells_which_methods_a_path_declares():
    index = RouteIndex(router().routes)
    assert index.has("HEAD", "/files/a")
    assert not index.has("HEAD", "/things")
    assert index.has("POST", "/things")


def test_only_routes_with_the_same_prefix_are_tried():
    asked: list[str] = []

    class Counting(Route):
        def matches(self, scope: object) -> object:  # type: ignore[override]
            asked.append(self.path)
            return super().matches(scope)  # type: ignore[arg-type]

    index = RouteIndex([Counting(f"/module{number}/{{id}}", PlainTextResponse("")) for number in range(150)])
    index.matches({"type": "http", "method": "GET", "path": "/module77/x", "root_path": ""})
    assert asked == ["/module77/{id}"]


async def test_a_path_parameter_may_contain_an_encoded_slash():
    app, router = FastAPI(), APIRouter()

    @router.get("/things/{name}/parts/{part}")
    async def show(name: str, part: str) -> list[str]:
        return [name, part]

    app.router.routes[:] = [RouteIndex(router.routes)]
    assert (await call(app, "GET", "/things/a%2Fb/parts/%25c%2f")).json == ["a/b", "%c/"]
    assert (await call(app, "GET", "/things/a/b/parts/c")).status == 404
