"""Query parameters that a route does not declare are refused, or warned of, and raw UTF-8 is read as UTF-8."""

from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.routing import APIRoute

from penstock.kernel.http.headers import WARNINGS, add_warning
from penstock.kernel.http.problems import install_error_handlers
from penstock.kernel.http.query_string import UnknownQuery, check_query
from penstock.kernel.http.request_url import BadUrl, check_url
from penstock.kernel.http.routes import RouteIndex
from tests.asgi import Response, scope_of, send_request


async def _check(request: Request) -> None:
    check_query(request.scope)


async def _page(page: int = 1, page_size: Annotated[int, Query(alias="pageSize")] = 20) -> int:
    return page * page_size


class Lenient(APIRoute):
    unknown_query = UnknownQuery.WARN


class Careful(APIRoute):
    unknown_query = UnknownQuery.REFUSE_SIMILAR


def router(path: str, route_class: type[APIRoute] = APIRoute) -> APIRouter:
    made = APIRouter(route_class=route_class, dependencies=[Depends(_check)])
    described = {"parameters": [{"name": "since", "in": "query"}, {"name": "X-Client", "in": "header"}]}

    @made.get(path, openapi_extra=described)
    async def read(request: Request, page: Annotated[int, Depends(_page)], tags: str = "") -> dict[str, Any]:
        return {"page": page, "tags": tags, "warnings": [value.decode() for _, value in _warnings(request)]}

    @made.post(path)
    async def write() -> None:
        """Takes no query parameter."""

    return made


def _warnings(request: Request) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = request.scope.get(WARNINGS, [])
    return found


@pytest.fixture
def app() -> FastAPI:
    made = FastAPI()
    routers = router("/strict"), router("/lenient", Lenient), router("/careful", Careful)
    made.router.routes[:] = [RouteIndex([route for one in routers for route in one.routes])]
    install_error_handlers(made)
    return made


def reasons(answer: Response) -> dict[str, str]:
    assert (answer.status, answer.json["code"]) == (400, "VALIDATION")
    return {error["field"]: error["reason"] for error in answer.json["errors"]}


class TestRefused:
    @pytest.mark.parametrize(
        ("given", "meant"),
        [("tag", "tags"), ("TAGS", "tags"), ("tgas", "tags"), ("page_size", "pageSize"), ("sinse", "since")],
    )
    async def test_a_mistyped_name_is_refused_with_the_one_that_was_meant(self, app: FastAPI, given: str, meant: str):
        answer = await send_request(app, "GET", f"/strict?page=2&{given}=fr")
        assert reasons(answer) == {given: f"Unknown query parameter; did you mean {meant}?"}

    async def test_a_name_like_no_other_is_refused_with_those_that_exist(self, app: FastAPI):
        answer = await send_request(app, "GET", "/strict?colour=red")
        assert reasons(answer) == {"colour": "Unknown query parameter; expected one of page, pageSize, since, tags"}

    async def test_a_route_without_parameters_says_so(self, app: FastAPI):
        answer = await send_request(app, "POST", "/strict?dry=1")
        assert reasons(answer) == {"dry": "Unknown query parameter; this route has none"}

    async def test_the_reason_is_in_chinese_where_that_is_preferred(self, app: FastAPI):
        answer = await send_request(app, "GET", "/strict?tag=fr", accept_language="zh")
        assert reasons(answer) == {"tag": "未知的查询参数；是否想用 tags？"}

    async def test_of_many_only_the_first_are_named(self, app: FastAPI):
        query = "&".join(f"zz{number}=1" for number in range(100))
        assert len(reasons(await send_request(app, "GET", f"/strict?{query}"))) == 5

    @pytest.mark.parametrize("query", ["", "page=2", "pageSize=5&since=1", "t%61gs=fr", "&&tags", "tags=a&tags=b"])
    async def test_declared_names_pass_however_they_are_encoded(self, app: FastAPI, query: str):
        assert (await send_request(app, "GET", f"/strict?{query}")).status == 200


class TestWarned:
    async def test_the_request_is_served_and_the_response_warns(self, app: FastAPI):
        answer = await send_request(app, "GET", "/lenient?tag=fr&_=12&page=3")
        assert answer.json["page"] == 60
        assert answer.json["warnings"] == [
            '299 - "Unknown query parameter ignored: tag; did you mean tags?"',
            '299 - "Unknown query parameter ignored: _"',
        ]

    async def test_where_a_wrong_filter_does_harm_only_a_mistyped_one_is_refused(self, app: FastAPI):
        assert list(reasons(await send_request(app, "GET", "/careful?tag=fr&_=12"))) == ["tag"]
        assert len((await send_request(app, "GET", "/careful?_=12")).json["warnings"]) == 1

    @pytest.mark.parametrize("name", ["a%0d%0aSet-Cookie:x", "%22quoted%22", "标签", "x" * 4000])
    def test_a_name_cannot_break_the_header(self, name: str):
        scope = scope_of("GET", "/")
        add_warning(scope, f"Unknown: {name}")
        [(_, value)] = scope[WARNINGS]
        text = value.decode("ascii")
        assert text.isprintable()
        assert text.count('"') == 2
        assert len(text) < 400


class TestUtf8:
    @pytest.mark.parametrize("query", ["tags=%E6%90%9C%E7%B4%A2", "tags=搜索"])
    async def test_raw_utf8_is_read_like_percent_encoded_utf8(self, app: FastAPI, query: str):
        scope = scope_of("GET", f"/strict?{query}")
        check_url(scope)
        answer = await send_request(app, "GET", f"/strict?{scope['query_string'].decode('ascii')}")
        assert answer.json["tags"] == "搜索"

    def test_everything_else_keeps_its_meaning(self):
        scope = scope_of("GET", "/strict?a=搜+b&c=%41%2B&d=[x]~'")
        check_url(scope)
        assert scope["query_string"] == b"a=%E6%90%9C+b&c=%41%2B&d=[x]~'"

    @pytest.mark.parametrize("query", ["搜索".encode("gbk"), b"%cb%d1%cb%f7", b"a=%ff"])
    def test_what_is_not_utf8_is_refused_and_does_not_find_nothing(self, query: bytes):
        with pytest.raises(BadUrl) as refusal:
            check_url({**scope_of("GET", "/strict"), "query_string": query})
        assert str(refusal.value) == "Invalid URL: the query string is not UTF-8."
