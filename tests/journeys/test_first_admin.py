"""A fresh server and who becomes its first admin, with real connections."""

import asyncio
import re
from pathlib import Path

import aiohttp

from tests.journeys.command import Serving

ANN = {"username": "ann", "password": "correct horse battery"}
TOKEN = re.compile(r"setup token .*: (su-[\w-]{43})\n")
CLIENT = "198.51.100.7"


async def test_a_fresh_server_makes_an_admin_of_who_read_its_output_and_of_nobody_else(tmp_path: Path):
    output = tmp_path / "output"
    serving = Serving("--data-dir", str(tmp_path / "data"), output=str(output), PENSTOCK_TRUSTED_PROXIES="127.0.0.1")
    init = f"{serving.url}/api/v1/auth/init"
    forwarded = {"X-Forwarded-For": CLIENT}
    try:
        async with aiohttp.ClientSession() as session:

            async def status(headers: dict[str, str], **more: str) -> int:
                async with session.post(init, json=ANN | more, headers=headers) as answer:
                    return answer.status

            await serving.ready(session)
            assert await status({"Host": "evil.example", "Origin": "http://evil.example"}) == 403  # DNS rebinding
            assert await status({"Origin": "http://evil.example"}) == 403  # a page that posts to our address
            assert await status({}) == 403  # a proxy on this host that says nothing
            assert await status(forwarded) == 403  # and one that does
            async with asyncio.timeout(30):
                while (found := TOKEN.search(output.read_text())) is None:  # noqa: ASYNC110  (another process)
                    await asyncio.sleep(0.05)
            assert await status(forwarded, setupToken=found[1]) == 200
            async with session.post(f"{serving.url}/api/v1/auth/login", json=ANN, headers=forwarded) as answer:
                login = (await answer.json())["data"]["token"]
            headers = {"Authorization": f"Bearer {login}"}
            async with session.get(f"{serving.url}/api/v1/audit?action=user.init", headers=headers) as answer:
                [line] = (await answer.json())["data"]["items"]
            assert line["address"] == CLIENT
            async with session.get(f"{serving.url}/livez", headers={"Host": "any.example"}) as answer:
                assert answer.status == 200
    finally:
        assert serving.stop() == 0
    logged = output.read_text()
    assert f"address={CLIENT}" in logged
    assert logged.count(found[1]) == 1, "the token is printed once, and not logged"
