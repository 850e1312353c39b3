"""The page at the root of the server, until there is a console."""

from penstock.web.app import build_app
from penstock.wiring import Runtime
from tests.asgi import call


async def test_the_root_is_a_plain_page_in_the_callers_language(runtime: Runtime):
    app = build_app(runtime)
    english = await call(app, "GET", "/")
    assert (english.status, english.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"/api/v1/openapi.json" in english.body
    assert b"no web console yet" in english.body
    assert b"<script" not in english.body
    chinese = await call(app, "GET", "/", headers=[("Accept-Language", "zh-CN")])
    assert "控制台" in chinese.body.decode()
    assert (await call(app, "HEAD", "/")).status == 200
    assert "/" not in app.openapi()["paths"]
