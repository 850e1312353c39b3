"""The fake server itself: its docstring lists its behaviours."""

import json
import re

import aiohttp

from tests.fakes import llm_server
from tests.fakes.llm_behaviours import BEHAVIOURS, GOOD
from tests.fakes.llm_server import LlmServer


async def said(server: LlmServer, model: str, **more: object) -> tuple[int, str]:
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}]} | more
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.base_url}/chat/completions", json=body) as answer,
    ):
        return answer.status, await answer.text()


def test_its_docstring_names_every_behaviour_and_invents_none():
    [listed] = re.findall(r"How the answer is written:(.*)A call with", llm_server.__doc__ or "", re.DOTALL)
    named = re.sub(r"\([^)]*\)|^[A-Z].*:$", "", listed, flags=re.MULTILINE)
    assert {name.strip() for name in named.replace("\n", ",").split(",")} - {""} == BEHAVIOURS


async def test_names_are_joined_and_hold_once_where_they_say_so():
    async with LlmServer() as server:
        statuses = [(await said(server, "busy-once+fenced"))[0] for _ in range(2)]
        _, text = await said(server, "busy-once+fenced")
        assert statuses == [429, 200]
        assert json.loads(text)["choices"][0]["message"]["content"].startswith("```json")
        assert (await said(server, "gpt"))[0] == 404
        assert [call.model for call in server.calls] == ["busy-once+fenced"] * 3 + ["gpt"]


async def test_a_stream_holds_the_whole_answer():
    async with LlmServer() as server:
        _, text = await said(server, "good", stream=True)
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    deltas = [json.loads(event)["choices"][0]["delta"].get("content", "") for event in events]
    assert json.loads("".join(deltas)) == GOOD
