"""Language models behind any OpenAI-compatible chat completions server.

   question ─ chat.py ─▶ rate_limit.py (shared by all workers) ─▶ http.py (one POST) ─▶ completions.py ─▶ reply
                ▲                                                     │
                └──── response_modes.py (next mode) ◀──────── errors.py (error response)

- `servers.py`: the configured servers and call options.
- `response_modes.py`: structured output modes from strict schema to plain text, unsupported fields, and their cache.
- `errors.py`: maps an error response to one of the errors in `documents/chat_model.py`.
- `metrics.py`: Prometheus metrics.
"""

from penstock.adapters.llm.chat import ChatCompletions
from penstock.adapters.llm.metrics import LlmMetrics
from penstock.adapters.llm.servers import DEFAULT, BadModelServer, ChatConfig, FirstMode, ModelServer, read_servers

__all__ = [
    "DEFAULT",
    "BadModelServer",
    "ChatCompletions",
    "ChatConfig",
    "FirstMode",
    "LlmMetrics",
    "ModelServer",
    "read_servers",
]
