"""The child process: apply limits and isolation, run the function, write the result, exit.

A child is a fork of the zygote. By the time untrusted bytes are touched it shares nothing with it but memory: the
environment is empty, other descriptors are closed, limits are set, system calls and files are restricted. It reports
that it is isolated (RUNNING) before, so it cannot blame us for its own failure. It exits by `os._exit`, so no code of
the zygote runs on in the copy. In a session a child serves several calls.
"""

import gc
import importlib
import math
import os
import resource
import signal
import time
from dataclasses import dataclass
from operator import attrgetter
from typing import NoReturn

import msgspec

from penstock.kernel.errors import error_text
from penstock.kernel.sandbox import landlock, linux, wire
from penstock.kernel.sandbox.isolation import Isolation

MAX_OPEN_FILES = 64
MAX_DESCRIPTOR = 1024  # the zygote is limited to it, so there is nothing above to close
MAX_TASKS = 1024  # RLIMIT_NPROC: of the whole user, threads included; enough for native libraries, too few for a bomb


@dataclass(frozen=True, kw_only=True)
class ChildJob:
    """One spawn request with the descriptors that came with it."""

    request: wire.SpawnRequest
    output: int  # descriptor of the pipe for the result
    file: int | None
    calls: int | None  # descriptor of the socket with further calls, in a session
    mapped_bytes: int  # memory that the zygote has mapped already and every child shares


def run_child(job: ChildJob, isolation: Isolation) -> NoReturn:
    """Run the job and exit. Only a child may call this."""
    try:
        if _isolate(job, isolation):
            _serve(job)
    finally:
        os._exit(0)


def _isolate(job: ChildJob, isolation: Isolation) -> bool:
    try:
        apply_isolation(job, isolation)
    except Exception as error:  # noqa: BLE001  (whatever it is, the work must not start without isolation)
        _write(job.output, error_text(error).encode())  # no RUNNING before it, so the caller knows that nothing ran
        return False
    _write(job.output, wire.RUNNING)
    return True


def _serve(job: ChildJob) -> None:
    if job.request.call is not None:
        _write(job.output, _reply(job.request.call, job))
    if job.calls is None:
        return
    while message := os.read(job.calls, wire.MAX_MESSAGE_BYTES):
        _serve_call(job, msgspec.msgpack.decode(message, type=wire.CallRequest))


def _serve_call(job: ChildJob, call: wire.CallRequest) -> None:
    """One of several calls. The reply is local to this function, so the next call finds its memory free."""
    _allow_cpu(call.cpu_seconds)
    reply = _reply(call, job)
    _write(job.output, len(reply).to_bytes(wire.REPLY_LENGTH_BYTES))
    _write(job.output, reply)


def _allow_cpu(seconds: int) -> None:
    """Allow that much CPU time on top of what was used so far, within the hard limit of the process."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(time.process_time()) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _reply(call: wire.CallRequest, job: ChildJob) -> bytes:
    try:
        return wire.VALUE + msgspec.msgpack.encode(_run(call, job))
    except MemoryError:
        return wire.OUT_OF_MEMORY
    except BaseException as error:  # noqa: BLE001  (SystemExit and the like are results too; nothing above handles them)
        return _encode_error(error)


def _run(call: wire.CallRequest, job: ChildJob) -> object:
    module, _, path = call.function.partition(":")
    function = attrgetter(path)(importlib.import_module(module))
    arguments = msgspec.msgpack.decode(call.arguments)
    if job.file is None:
        return function(*arguments)
    inherited = job.file
    os.lseek(inherited, 0, os.SEEK_SET)
    # Opened by its descriptor, but named by its path, for libraries that open files by name.
    with open(job.request.file, "rb", opener=lambda *_: os.dup(inherited)) as opened:
        return function(opened, *arguments)


def _encode_error(error: BaseException) -> bytes:
    try:
        return wire.RAISED + msgspec.msgpack.encode((type(error).__name__, error_text(error)))
    except MemoryError:
        return wire.OUT_OF_MEMORY
    except BaseException:  # noqa: BLE001  (str() of an untrusted error may raise)
        return wire.RAISED + msgspec.msgpack.encode(("Exception", ""))


def _write(output: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(output, left) :]


def apply_isolation(job: ChildJob, isolation: Isolation) -> None:
    """Give up everything that the job does not need. The filter comes last: it refuses what the other steps use."""
    os.setsid()
    linux.die_with_parent()
    if os.getppid() != isolation.zygote:
        raise OSError("the zygote exited before its child could be tied to it")
    _reset_signals()
    _set_limits(job, max_tasks=MAX_TASKS if isolation.filter is not None else 0)
    if isolation.readable is not None:
        own = () if job.file is None else (landlock.Readable(job.file),)
        landlock.restrict((*isolation.readable, *own))
    _close_other_descriptors(job)
    gc.enable()
    if isolation.filter is not None:
        isolation.filter.install()


def _reset_signals() -> None:
    """SIGTERM and the like stay ignored: a stop of the service must not look like a crash caused by the file."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _set_limits(job: ChildJob, *, max_tasks: int) -> None:
    request = job.request
    limits = {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_FSIZE: (0, 0),
        resource.RLIMIT_NOFILE: (MAX_OPEN_FILES, MAX_OPEN_FILES),
        resource.RLIMIT_NPROC: (max_tasks, max_tasks),  # 0 where no filter refuses forks
        resource.RLIMIT_CPU: (request.cpu_seconds, request.cpu_seconds + 1),  # SIGXCPU first, SIGKILL a second later
        resource.RLIMIT_AS: (job.mapped_bytes + request.memory_bytes,) * 2,
    }
    for limit, (soft, hard) in limits.items():
        _, current = resource.getrlimit(limit)
        if current != resource.RLIM_INFINITY:
            soft, hard = min(soft, current), min(hard, current)
        resource.setrlimit(limit, (soft, hard))


def _close_other_descriptors(job: ChildJob) -> None:
    """Keep the output, the file and the call socket; the standard streams become /dev/null."""
    os.dup2(0, 1)  # the zygote's own input is /dev/null
    os.dup2(0, 2)
    optional = {each for each in (job.file, job.calls) if each is not None}
    kept = sorted({0, 1, 2, job.output} | optional)
    for low, high in zip(kept, [*kept[1:], MAX_DESCRIPTOR], strict=True):
        os.closerange(low + 1, high)
