"""The webhook API: visibility, validation and errors, with real keys."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fastapi import FastAPI

from penstock.access import keys
from penstock.access.authenticate import Authenticator
from penstock.access.domain import NewKey, Scope
from penstock.access.tokens import Tokens
from penstock.kernel.http.problems import install_error_handlers
from penstock.kernel.http.routes import RouteIndex
from penstock.notify.api import router
from penstock.notify.domain import DeliveryState
from tests.asgi import Response, call
from tests.contract import RouteContract
from tests.fakes.receivers import Receiver, ReceiverThatSays
from tests.notify.conftest import NotifyHarness, Paid

BASE = "/api/v1/webhooks"
URL = "http://127.0.0.1:8000/hook"
Ask = Callable[..., Awaitable[Response]]

KEYS = {
    "admin": NewKey(name="admin", scope=Scope.ADMIN, user_id=1),
    "anna": NewKey(name="anna", scope=Scope.WRITE, user_id=5),
    "anna reads": NewKey(name="anna reads", scope=Scope.READ, user_id=5),
    "bert": NewKey(name="bert", scope=Scope.WRITE, user_id=6, merchant_id=9),
    "carla": NewKey(name="carla", scope=Scope.WRITE, user_id=7, merchant_id=9),
    "bound": NewKey(name="bound", scope=Scope.WRITE, user_id=5, project="p"),
}


CONTRACT = RouteContract(router.routes)


@pytest.fixture
async def ask(notify: NotifyHarness) -> Ask:
    """Calls as one of those above."""
    app = FastAPI()
    install_error_handlers(app)
    app.router.routes[:] = [RouteIndex(router.routes)]
    app.state.db, app.state.notify = notify.db, notify.deps
    app.state.access = Authenticator(
        notify.db, tokens=Tokens(notify.clock, secret="a secret of thirty-two bytes or more")
    )
    async with notify.db.tx() as tx:
        secrets = {name: (await keys.create(tx, new, by="test")).secret for name, new in KEYS.items()}

    async def ask_as(who: str, method: str, path: str = "", body: object = None, **headers: str) -> Response:
        given = [("X-API-Key", secrets[who])] if who else []
        response = await call(app, method, BASE + path, body, headers=[*given, *headers.items()])
        CONTRACT.check(method, BASE + path, response)
        return response

    return ask_as


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """Requests and responses are the same on both databases; the store tests cover the statements on each."""
    return sqlite_url


async def added(ask: Ask, who: str = "anna", url: str = URL) -> Any:
    answer = await ask(who, "POST", body={"url": url})
    assert answer.status == 201, answer.body
    return answer.json


@pytest.fixture
async def sent(notify: NotifyHarness, ask: Ask) -> tuple[str, str]:
    """A webhook of Anna's and a delivery that arrived."""
    async with Receiver() as receiver:
        webhook = await added(ask, url=receiver.url)
        await notify.send(Paid(user_id=5))
    [delivery] = (await ask("anna", "GET", f"/{webhook['id']}/deliveries")).json["items"]
    return webhook["id"], delivery["id"]


class TestSecrets:
    async def test_a_secret_is_shown_once(self, ask: Ask):
        webhook = await added(ask)
        path = f"/{webhook['id']}"
        rotated = (await ask("anna", "POST", f"{path}/rotate-secret")).json
        assert webhook["secret"].startswith("whsec_")
        assert rotated["secret"] != webhook["secret"]
        later = [
            await ask("anna", "GET"),
            await ask("anna", "GET", path),
            await ask("anna", "PATCH", path, {"active": False}),
            await ask("admin", "GET"),
            await ask("admin", "GET", path),
        ]
        for answer in later:
            assert answer.status == 200
            assert b"whsec_" not in answer.body
            assert b'"secret"' not in answer.body


class TestViews:
    async def test_a_webhook_is_shown_as_it_is(self, ask: Ask):
        webhook = await added(ask, "bert")
        del webhook["secret"]
        assert webhook == (await ask("bert", "GET", f"/{webhook['id']}")).json
        assert {
            name: webhook[name] for name in ("url", "channels", "active", "user_id", "merchant_id", "sees_all")
        } == {
            "url": URL,
            "channels": ["*"],
            "active": True,
            "user_id": 6,
            "merchant_id": 9,
            "sees_all": False,
        }

    async def test_a_change_updates_the_given_fields(self, ask: Ask):
        webhook = await added(ask)
        answer = await ask("anna", "PATCH", f"/{webhook['id']}", {"channels": ["Paid"], "active": False})
        assert (answer.json["channels"], answer.json["active"]) == (["Paid"], False)
        assert answer.json["url"] == URL

    async def test_a_removed_webhook_is_not_found(self, ask: Ask):
        webhook = await added(ask)
        assert (await ask("anna", "DELETE", f"/{webhook['id']}")).status == 204
        gone = await ask("anna", "GET", f"/{webhook['id']}")
        assert (gone.status, gone.json["code"]) == (404, "WEBHOOK_NOT_FOUND")

    async def test_a_ping_is_accepted_and_shows_among_the_deliveries(self, notify: NotifyHarness, ask: Ask):
        async with Receiver() as receiver:
            webhook = await added(ask, url=receiver.url)
            assert (await ask("anna", "POST", f"/{webhook['id']}/ping")).status == 202
            await notify.work()
        [delivery] = (await ask("anna", "GET", f"/{webhook['id']}/deliveries")).json["items"]
        assert (delivery["channel"], delivery["state"], delivery["status_code"]) == ("WebhookPing", "delivered", 200)

    async def test_a_delivery_shows_what_was_posted(self, ask: Ask, sent: tuple[str, str]):
        delivery = (await ask("anna", "GET", f"/{sent[0]}/deliveries/{sent[1]}")).json
        assert json.loads(delivery["body"])["payload"]["user_id"] == 5
        assert (delivery["attempts"], delivery["response"]) == (1, "thank you")

    async def test_a_delivery_is_sent_again(self, ask: Ask, sent: tuple[str, str]):
        answer = await ask("anna", "POST", f"/{sent[0]}/deliveries/{sent[1]}/resend")
        assert (answer.status, answer.json["state"], answer.json["attempts"]) == (202, "pending", 0)


class TestPages:
    async def test_webhooks_come_page_by_page(self, ask: Ask):
        made = [(await added(ask))["id"] for _ in range(5)]
        seen, after = [], ""
        while True:
            page = (await ask("anna", "GET", f"?limit=2{after}")).json
            seen += [item["id"] for item in page["items"]]
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        assert seen == made

    async def test_deliveries_come_newest_first_and_by_state(self, notify: NotifyHarness, ask: Ask):
        async with ReceiverThatSays(200, 200, 200, 500) as receiver:
            webhook = await added(ask, url=receiver.url)
            await notify.send(*(Paid(user_id=5) for _ in range(4)))
        everything = (await ask("anna", "GET", f"/{webhook['id']}/deliveries")).json
        assert everything["next"] is None
        newest = [item["id"] for item in everything["items"]]
        assert newest == sorted(newest, reverse=True)
        first = (await ask("anna", "GET", f"/{webhook['id']}/deliveries?limit=3")).json
        rest = (await ask("anna", "GET", f"/{webhook['id']}/deliveries?limit=3&after={first['next']}")).json
        assert [item["id"] for item in first["items"] + rest["items"]] == newest
        pending = (await ask("anna", "GET", f"/{webhook['id']}/deliveries?state={DeliveryState.PENDING}")).json
        assert [item["status_code"] for item in pending["items"]] == [500]


class TestRefusals:
    @pytest.mark.parametrize(
        ("body", "code", "field"),
        [
            ({"url": "http://10.0.0.1/"}, "WEBHOOK_ADDRESS_REFUSED", "url"),
            ({"url": "http://169.254.169.254/latest/meta-data"}, "WEBHOOK_ADDRESS_REFUSED", "url"),
            ({"url": "http://2130706433/"}, "WEBHOOK_ADDRESS_REFUSED", "url"),
            ({"url": "ftp://example.com/"}, "WEBHOOK_URL_INVALID", "url"),
            ({"url": "http://u:p@127.0.0.1/"}, "WEBHOOK_URL_INVALID", "url"),
            ({"url": "http://127.0.0.1/\u0000"}, "WEBHOOK_URL_INVALID", "url"),
            ({"url": "http://127.0.0.1/\ud800"}, "VALIDATION", "url"),
            ({"url": "x" * 3000}, "VALIDATION", "url"),
            ({"url": URL, "channels": ["Nobody"]}, "WEBHOOK_CHANNEL_UNKNOWN", "channels"),
            ({"url": URL, "channels": []}, "VALIDATION", "channels"),
            ({"url": URL, "channels": ["*"] * 101}, "VALIDATION", "channels"),
            ({"url": URL, "secret": "mine"}, "VALIDATION", "secret"),
            ({}, "VALIDATION", "url"),
            ([], "VALIDATION", ""),
        ],
    )
    async def test_bad_input_is_a_400_that_names_the_field(self, ask: Ask, body: object, code: str, field: str):
        answer = await ask("anna", "POST", body=body)
        assert (answer.status, answer.json["code"]) == (400, code), answer.body
        assert field in answer.json["detail"]
        assert answer.headers["content-type"] == "application/problem+json"

    async def test_a_change_to_a_bad_address_is_refused_too(self, ask: Ask):
        webhook = await added(ask)
        answer = await ask("anna", "PATCH", f"/{webhook['id']}", {"url": "http://localhost.:1/"})
        assert (answer.status, answer.json["code"]) == (400, "WEBHOOK_ADDRESS_REFUSED")

    async def test_errors_are_in_chinese_on_request(self, ask: Ask):
        answer = await ask("anna", "POST", body={"url": "ftp://example.com/"}, **{"Accept-Language": "zh-CN"})
        assert answer.json["detail"] == "字段 url 无法使用：既不是 http 也不是 https。"

    @pytest.mark.parametrize("path", ["/%00", "/a%2Fb", "/" + "a" * 100, "?after=%00", "?limit=0", "?limit=1000"])
    async def test_an_invalid_id_is_a_4xx(self, ask: Ask, path: str):
        assert 400 <= (await ask("anna", "GET", path)).status < 500

    async def test_too_many_are_a_conflict(self, ask: Ask):
        for _ in range(20):
            await added(ask)
        answer = await ask("anna", "POST", body={"url": URL})
        assert (answer.status, answer.json["code"]) == (409, "WEBHOOK_LIMIT")


ROUTES = [
    ("GET", "/{webhook}", None),
    ("PATCH", "/{webhook}", {"active": False}),
    ("DELETE", "/{webhook}", None),
    ("POST", "/{webhook}/rotate-secret", None),
    ("POST", "/{webhook}/ping", None),
    ("GET", "/{webhook}/deliveries", None),
    ("GET", "/{webhook}/deliveries/{delivery}", None),
    ("POST", "/{webhook}/deliveries/{delivery}/resend", None),
]
ALL_ROUTES = [("GET", "", None), ("POST", "", {"url": URL}), *ROUTES]


def filled(path: str, sent: tuple[str, str]) -> str:
    return path.format(webhook=sent[0], delivery=sent[1])


class TestAuthorization:
    def test_every_route_is_tried_here(self):
        served = {(method, route.path) for route in router.routes for method in route.methods}  # type: ignore[attr-defined]  # all of them are API routes
        told = {(method, BASE + path.replace("}", "_id}")) for method, path, _ in ALL_ROUTES}
        assert served == told

    @pytest.mark.parametrize(("method", "path", "body"), ROUTES)
    async def test_a_webhook_of_another_tenant_is_not_found(self, ask: Ask, sent: tuple[str, str], method, path, body):
        answer = await ask("bert", method, filled(path, sent), body)
        assert (answer.status, answer.json["code"]) == (404, "WEBHOOK_NOT_FOUND")

    async def test_webhooks_of_another_tenant_are_not_listed(self, ask: Ask, sent: tuple[str, str]):
        assert (await ask("bert", "GET")).json["items"] == []
        assert [item["id"] for item in (await ask("admin", "GET")).json["items"]] == [sent[0]]

    @pytest.mark.parametrize(("method", "path", "_body"), [route for route in ROUTES if "{delivery}" in route[1]])
    async def test_a_delivery_is_found_only_through_its_own_webhook(self, ask: Ask, sent, method, path, _body):
        other = await added(ask)
        answer = await ask("anna", method, filled(path, (other["id"], sent[1])))
        assert (answer.status, answer.json["code"]) == (404, "WEBHOOK_DELIVERY_NOT_FOUND")

    @pytest.mark.parametrize(("method", "path", "body"), ALL_ROUTES)
    async def test_reads_need_the_scope_read_and_the_rest_write(self, ask: Ask, sent, method, path, body):
        path = filled(path, sent)
        assert (await ask("", method, path, body)).status == 401
        assert (await ask("bound", method, path, body)).status == 403
        assert (await ask("anna reads", method, path, body)).status == (200 if method == "GET" else 403)
        assert (await ask("anna", method, path, body)).status < 300

    async def test_a_colleague_cannot_take_a_webhook_over(self, ask: Ask):
        """Every route: a colleague of the same merchant sees that the webhook exists, and nothing else."""
        webhook = await added(ask, "bert")
        before = (await ask("bert", "GET", f"/{webhook['id']}")).json
        for method, path, body in ROUTES:
            answer = await ask("carla", method, filled(path, (webhook["id"], "whd_1")), body)
            if (method, path) == ("GET", "/{webhook}"):
                assert (answer.status, answer.json["url"]) == (200, "http://127.0.0.1")
            else:
                assert (answer.status, answer.json["code"]) == (403, "WEBHOOK_NOT_YOURS"), (method, path)
        [listed] = (await ask("carla", "GET", "")).json["items"]
        assert (listed["id"], listed["url"]) == (webhook["id"], "http://127.0.0.1")
        assert (await ask("bert", "GET", f"/{webhook['id']}")).json == before
