"""Refused credentials in the audit log, and how few lines a stranger can cause."""

import jwt

from penstock.access import audit, keys
from penstock.access.audit import AuditLine
from penstock.access.authenticate import MAX_REFUSED, Authenticator
from penstock.access.domain import Scope
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from tests.access.conftest import AccessClient, Make
from tests.asgi import call

SAMPLE = "/api/v1/sample/inside"


async def recorded(db: Db, access: Authenticator) -> list[AuditLine]:
    await access.write_refused()
    async with db.read() as tx:
        return list(await audit.list_lines(tx, action="key.refused", limit=100))


async def test_refused_keys_and_tokens_are_recorded_with_their_address(
    client: AccessClient, db: Db, access: Authenticator, make: Make, clock: ManualClock
):
    revoked = await make(Scope.READ)
    async with db.tx() as tx:
        await keys.revoke(tx, revoked.key.id, by="test")
    for _ in range(3):
        await call(client.app, "GET", SAMPLE, headers=[("x-api-key", "sk-made-up-secret")], client="198.51.100.7")
    await call(client.app, "GET", SAMPLE, headers=[("x-api-key", revoked.secret)], client="198.51.100.8")
    forged = jwt.encode({"user_id": 1, "exp": clock.now().timestamp() + 60}, "another secret of 32 bytes at least")
    await call(client.app, "GET", SAMPLE, headers=[("authorization", f"Bearer {forged}")], client="198.51.100.9")
    lines = await recorded(db, access)
    assert [(line.address, line.target, line.detail["reason"], line.detail["count"]) for line in reversed(lines)] == [
        ("198.51.100.7", "key", "it is not known", 3),
        ("198.51.100.8", f"key:{revoked.key.id}", "it was revoked", 1),
        ("198.51.100.9", "token", "it is not valid", 1),
    ]
    assert "made-up-secret" not in str(lines)


async def test_a_stranger_cannot_flood_the_audit_log(client: AccessClient, db: Db, access: Authenticator):
    for number in range(500):
        address = f"198.51.{number // 250}.{number % 250}"
        await call(client.app, "GET", SAMPLE, headers=[("x-api-key", f"sk-{number}")], client=address)
    lines = await recorded(db, access)
    assert len(lines) == MAX_REFUSED + 1
    assert sum(int(str(line.detail["count"])) for line in lines) == 500
    assert [line.detail["count"] for line in lines if line.target == "others"] == [500 - MAX_REFUSED]
    assert await recorded(db, access) == lines, "what was written is not written again"


async def test_a_request_without_a_key_and_a_good_key_are_not_recorded(
    client: AccessClient, db: Db, access: Authenticator
):
    await client.request_anonymously("GET", SAMPLE)
    await client.request("GET", SAMPLE)
    assert await recorded(db, access) == []
