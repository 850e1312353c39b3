"""Language models behind any server that speaks OpenAI's chat completions.

    question ─ chat.py ─▶ gate.py (a token of all workers) ─▶ wire.py (one POST) ─▶ answers.py ─▶ reply
                 ▲                                                │
                 └──── ladder.py (what the server takes) ◀── troubles.py (what a refusal means)

- `servers.py`: which servers there are, as the settings name them, and on what terms they are asked.
- `ladder.py`: how firmly JSON is asked for, which fields a server does not take, and the memory of both.
- `troubles.py`: from a status and the words beside it to one of the errors in `documents/chat_model.py`.
- `meters.py`: what is counted for Prometheus.
"""

from penstock.adapters.llm.chat import ChatCompletions
from penstock.adapters.llm.meters import LlmMeters
from penstock.adapters.llm.servers import DEFAULT, BadModelServer, FirstMode, Server, Terms, read_servers

__all__ = [
    "DEFAULT",
    "BadModelServer",
    "ChatCompletions",
    "FirstMode",
    "LlmMeters",
    "Server",
    "Terms",
    "read_servers",
]
