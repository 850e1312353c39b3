"""A request that is refused before its body was read: the client, which sends all of it first, learns why."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.web.server_main import ADMIN_KEY
from tests.web.server_process import ServerProcess
from tests.web.sockets import request, send_all_first

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEBIBYTE = 1024 * 1024
UPLOAD = "POST /api/v1/etl/upload_and_submit HTTP/1.1"
FORM = "Content-Type: multipart/form-data; boundary=b"
KEY = f"X-API-Key: {ADMIN_KEY}"
JSON = "Content-Type: application/json"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("server")
    started = ServerProcess(folder)
    await started.wait_ready()
    yield started
    started.terminate()
    await started.wait_exit()


@pytest.mark.parametrize(
    ("line", "headers", "status", "code"),
    [
        (UPLOAD, (FORM,), 401, b"Send a key in X-API-Key"),
        (UPLOAD, (FORM, KEY), 400, b"BAD_BODY"),
        ("POST /api/v1/submit HTTP/1.1", (JSON, KEY), 413, b"BODY_TOO_LARGE"),
        ("POST /raw HTTP/1.1", ("Content-Type: text/plain",), 413, b"BODY_TOO_LARGE"),
        ("POST /api/v1/nothing-here?api_key=x HTTP/1.1", (FORM,), 400, b"KEY_IN_URL"),
    ],
    ids=["no key", "no form", "json too large", "raw too large", "bad url"],
)
@pytest.mark.parametrize("megabytes", [3, 20])
async def test_the_refusal_reaches_a_client_that_sends_everything_first(
    server: ServerProcess, line: str, headers: tuple[str, ...], status: int, code: bytes, megabytes: int
):
    size = megabytes * MEBIBYTE
    head = request(line, *headers, f"Content-Length: {size}")
    [answer] = await asyncio.to_thread(send_all_first, server.port, (head, size))
    assert answer.statuses == [status]
    assert code in answer.text


async def test_the_connection_can_be_used_again_after_a_refusal(server: ServerProcess):
    size = 3 * MEBIBYTE
    refused = (request(UPLOAD, FORM, f"Content-Length: {size}"), size)
    answers = await asyncio.to_thread(
        send_all_first, server.port, refused, refused, (request("GET /livez HTTP/1.1"), 0)
    )
    assert [answer.statuses for answer in answers] == [[401], [401], [200]]
