"""ARQ jobs that other programs enqueue by the name of a function: they start a job of ours, or are refused.

They must be JSON: ARQ's default, pickle, runs whatever code is in it when it is read, so it is refused unread. Either
way a log line says what happened, and ARQ's result of the job says it to the caller.
"""

import logging
from typing import Any

import msgspec
from arq.utils import timestamp_ms

from penstock.adapters.arq_queue.enqueue import ArqFunctions
from penstock.kernel.errors import PenstockError, Unavailable, error_text
from penstock.kernel.json_object import JsonObject

log = logging.getLogger(__name__)

FORMER_FUNCTION = "penstock.job"  # earlier versions enqueued rows so; the reconciler enqueues them by their own ids
MAX_SHOWN = 200
NOT_JSON = "it is not JSON: give ARQ a job_serializer and job_deserializer for JSON"


class CallRefused(Exception):
    """An ARQ job of another program cannot be run. Only its log line and its result show why."""


class _Call(msgspec.Struct):
    """An ARQ job in ARQ's own short names."""

    f: str
    a: list[Any]
    k: dict[str, Any]
    et: int = 0
    t: int | None = None

    def __str__(self) -> str:
        arguments = [*map(repr, self.a), *(f"{name}={value!r}" for name, value in self.k.items())]
        return f"{self.f}({', '.join(arguments)})"[:MAX_SHOWN]


class ArqCalls:
    """Handles ARQ jobs of other programs."""

    def __init__(self, functions: ArqFunctions) -> None:
        self._functions = functions

    async def handle(self, queue: str, name: str, content: bytes) -> bytes:
        """Start the job that an ARQ job asks for; returns ARQ's result. While a dependency is down it raises, and the
        ARQ job stays in the queue."""
        began_ms, call = timestamp_ms(), _Call(f="?", a=[], k={})
        try:
            call = _decode(content)
            if call.f == FORMER_FUNCTION:
                return b""
            job_id = await self._start(call)
        except Unavailable:
            raise
        except (CallRefused, PenstockError) as error:
            log.warning("refused ARQ job %s in %s: %s: %s", name, queue, call, error_text(error))
            return _result(call, queue, name, began_ms, {"s": False, "r": error_text(error)})
        except Exception as error:  # a bug in a function must not stop the worker
            log.exception("ARQ job %s in %s failed: %s", name, queue, call)
            return _result(call, queue, name, began_ms, {"s": False, "r": type(error).__name__})
        log.info("ARQ job %s in %s: %s runs as job %s", name, queue, call, job_id)
        return _result(call, queue, name, began_ms, {"s": True, "r": job_id})

    async def _start(self, call: _Call) -> str:
        function = self._functions.get(call.f)
        if function is None:
            known = ", ".join(sorted(self._functions)) or "none"
            raise CallRefused(f"there is no function {call.f[:MAX_SHOWN]!r}; known functions: {known}")
        if len(call.a) > len(function.arguments):
            raise CallRefused(f"{call.f} takes {', '.join(function.arguments)}")
        given = {**dict(zip(function.arguments, call.a, strict=False)), **call.k}
        if given.keys() != {*function.arguments} or not all(type(value) is int for value in given.values()):
            raise CallRefused(f"{call.f} takes the integers {', '.join(function.arguments)}")
        return await function.start(**given)


def _decode(content: bytes) -> _Call:
    try:
        return msgspec.json.decode(content, type=_Call)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CallRefused(NOT_JSON) from error


def _result(call: _Call, queue: str, name: str, began_ms: int, outcome: JsonObject) -> bytes:
    times = {"et": call.et, "st": began_ms, "ft": timestamp_ms()}
    return msgspec.json.encode(
        {"t": call.t or 1, "f": call.f, "a": call.a, "k": call.k, **times, **outcome, "q": queue, "id": name}
    )
