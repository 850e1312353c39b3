"""Turns what a child wrote and how it exited into a value or an error.

Everything a child writes is hostile until the reply is decoded as the declared return type; anything else is refused.
Texts from it are sanitised: one printable line, cut short.
"""

import signal
from typing import TypeVar

import msgspec

from penstock.kernel.errors import Invalid, Unavailable
from penstock.kernel.sandbox import wire
from penstock.kernel.sandbox.errors import (
    SandboxBadAnswer,
    SandboxCrashed,
    SandboxedFailure,
    SandboxKilled,
    SandboxLost,
    SandboxOutOfCpu,
    SandboxOutOfMemory,
    SandboxTimedOut,
)
from penstock.kernel.sandbox.limits import SandboxLimits

T = TypeVar("T")

MAX_NAME_CHARACTERS = 100
MAX_TEXT_CHARACTERS = 500


def result_of(exited: wire.ChildExited, output: bytes, limits: SandboxLimits, returns: type[T]) -> T:
    """The value that a child returned, or its failure raised. How it exited counts before what it wrote."""
    if not output.startswith(wire.RUNNING):
        raise not_started(output)
    reply = output.removeprefix(wire.RUNNING)
    if exited.timed_out or exited.exit_code or not reply:
        raise exit_error(exited, limits, max_cpu_seconds=limits.cpu_seconds)
    return decode_reply(reply, limits, returns)


def require_exit(report: wire.ChildExited | wire.SpawnFailed | None) -> wire.ChildExited:
    """The exit of a child; raises `SandboxLost` when no child was spawned or the zygote is gone (no report)."""
    if report is None:
        raise SandboxLost(reason="its process ended")
    if isinstance(report, wire.SpawnFailed):
        raise SandboxLost(reason=f"no child could be spawned ({report.reason})")
    return report


def not_started(output: bytes) -> SandboxLost:
    """The error of a child that ended before it ran the function, so it says nothing about the file."""
    return SandboxLost(reason=f"a child ended before its work began {_printable(output.decode(errors='replace'))}")


def exit_error(exited: wire.ChildExited, limits: SandboxLimits, *, max_cpu_seconds: int) -> Invalid | Unavailable:
    """The error of a child that gave no usable result; `max_cpu_seconds` is the limit of its whole life."""
    if exited.timed_out:
        return SandboxTimedOut(seconds=limits.seconds)
    if exited.exit_code >= 0:
        return SandboxCrashed(how=f"exit status {exited.exit_code}")
    name = _signal_name(-exited.exit_code)
    if name == "SIGXCPU" or (name == "SIGKILL" and exited.cpu_seconds >= max_cpu_seconds):
        return SandboxOutOfCpu(seconds=limits.cpu_seconds)
    if name == "SIGKILL":  # not by us: the kernel does this when the machine is out of memory
        return SandboxKilled()
    return SandboxCrashed(how=name)


def decode_reply(reply: bytes, limits: SandboxLimits, returns: type[T]) -> T:
    """The value in a reply, or the error that it reports raised."""
    kind, body = reply[:1], reply[1:]
    try:
        if kind == wire.VALUE:
            return msgspec.msgpack.decode(body, type=returns)
        name, text = msgspec.msgpack.decode(body, type=tuple[str, str]) if kind == wire.RAISED else ("", "")
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise SandboxBadAnswer(reason=_printable(str(error))) from error
    if kind == wire.RAISED:
        raise SandboxedFailure(kind=_printable(name, MAX_NAME_CHARACTERS), text=_printable(text))
    if kind == wire.OUT_OF_MEMORY:
        raise SandboxOutOfMemory(memory_bytes=limits.memory_bytes)
    raise SandboxBadAnswer(reason="it begins with an unknown mark")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _printable(text: str, max_characters: int = MAX_TEXT_CHARACTERS) -> str:
    """Untrusted text as one line that cannot control a terminal or forge a log line."""
    shown = "".join(each if each.isprintable() else " " for each in text[:max_characters])
    return shown + "…" if len(text) > max_characters else shown
