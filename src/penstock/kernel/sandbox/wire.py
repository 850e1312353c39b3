"""Messages between caller and zygote, and the format of a child's output.

Caller and zygote are connected by a pair of Unix sockets that keep message boundaries (SEQPACKET), so no message is
read in parts; file descriptors travel with the messages. A child only writes to a pipe of its own. Nothing is pickled:
messages and values are MessagePack, decoded against the expected type.
"""

import socket
from collections.abc import Sequence

import msgspec

MAX_ARGUMENT_BYTES = 128 * 1024  # a message must fit the buffer of a socket, usually 208 KiB
MAX_MESSAGE_BYTES = MAX_ARGUMENT_BYTES + 16 * 1024
MAX_DESCRIPTORS = 3  # the output pipe, the file, and the call socket of a session
REPLY_LENGTH_BYTES = 8  # prefix of each reply in a session

# A child's output begins with RUNNING, written after its isolation is in place and before it runs untrusted work. So a
# child that failed in our own setup can be told from one that failed in its work. One of the other marks follows; in a
# session one per call, each with its length before it.
RUNNING = b"+"
VALUE = b"="
RAISED = b"!"
OUT_OF_MEMORY = b"M"


class Guards(msgspec.Struct, frozen=True, kw_only=True):
    """The isolation mechanisms that work on this machine, as tested by the zygote at its start."""

    seccomp: bool  # system calls that a pure function does not need are refused
    landlock: int  # ABI version that restricts file access; 0: a child may read what the service may read
    network_namespace: bool  # children run in a network namespace without devices

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the mechanisms that this machine lacks."""
        held = {"seccomp": self.seccomp, "landlock": self.landlock > 0, "network namespace": self.network_namespace}
        return tuple(name for name, holds in held.items() if not holds)


class ZygoteSetup(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first message to a zygote: modules to import, a warm-up call, folders that a child may read."""

    preload: tuple[str, ...]
    readable: tuple[str, ...]
    allow_socketpair: bool = False
    warmup: str = ""  # module:qualified.name of the function called once, in the zygote itself
    warmup_arguments: bytes = b""


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The function that a child runs."""

    function: str  # module:qualified.name
    arguments: bytes
    cpu_seconds: int


class SpawnRequest(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Fork a child. With it come the output pipe, optionally a file and, for a session, the socket of its calls."""

    number: int
    call: CallRequest | None  # None in a session: calls arrive on a socket of the child
    file: str  # the path of the file, which is sent open; empty without one
    memory_bytes: int
    cpu_seconds: int  # of its whole life
    seconds: float | None  # after which the zygote kills it; None in a session, where the caller keeps the time


class KillRequest(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Kill that child if it still runs."""

    number: int


class ZygoteReady(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The zygote has imported its modules and accepts requests."""

    guards: Guards


class ZygoteFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The zygote could not start, and exits."""

    reason: str


class ChildExited(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A child exited."""

    number: int
    exit_code: int  # or the negative number of the signal that killed it
    cpu_seconds: float
    timed_out: bool  # whether the zygote killed it at its deadline


class SpawnFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """No child could be forked for a request."""

    number: int
    reason: str


ToZygote = ZygoteSetup | SpawnRequest | KillRequest
ToCaller = ZygoteReady | ZygoteFailed | ChildExited | SpawnFailed


def new_socketpair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that keep message boundaries. The first never blocks, and buffers at least one message."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_MESSAGE_BYTES)
    return ours, theirs


def send(connection: socket.socket, message: ToZygote | ToCaller, descriptors: Sequence[int] = ()) -> None:
    """Send one message whole, or raise OSError."""
    socket.send_fds(connection, [msgspec.msgpack.encode(message)], descriptors)


def receive_request(connection: socket.socket) -> tuple[ToZygote, list[int]] | None:
    """The next message to the zygote; None when the caller is gone."""
    message, descriptors, flags, _ = socket.recv_fds(connection, MAX_MESSAGE_BYTES, MAX_DESCRIPTORS)
    if not message:
        return None
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        raise OSError("a message was truncated")
    return msgspec.msgpack.decode(message, type=ToZygote), descriptors


def receive_report(connection: socket.socket) -> ToCaller | None:
    """The next message to the caller; None when the zygote is gone. Raises BlockingIOError when there is none yet."""
    message = connection.recv(MAX_MESSAGE_BYTES)
    return msgspec.msgpack.decode(message, type=ToCaller) if message else None
