"""A push that is larger than any may be."""

import io
import json

import aiohttp

from tests.journeys.command import Serving
from tests.journeys.profiles import ADMIN_KEY, Profile

BYTES = 50 * 1024 * 1024


async def test_a_body_of_50_mb_is_refused_and_writes_nothing(profile: Profile, session: aiohttp.ClientSession):
    task = {"id": "a", "name": "n", "prompt": "x" * BYTES, "status": "pending"}
    body = {"project_id": "p", "project_name": "P", "queue_id": "q", "queue_name": "Q", "tasks": [task]}
    headers = {"X-API-Key": ADMIN_KEY, "Content-Type": "application/json"}
    sent, serving = io.BytesIO(json.dumps(body).encode()), Serving(**profile.settings)
    try:
        await serving.ready(session)
        async with session.post(f"{serving.url}/api/v1/submit", data=sent, headers=headers) as answer:
            told = await answer.json()
            assert (answer.status, told["success"], told["error"]["details"]["code"]) == (413, False, "BODY_TOO_LARGE")
        async with session.get(f"{serving.url}/api/v1/projects/p", headers=headers) as answer:
            assert answer.status == 404
    finally:
        serving.kill()
