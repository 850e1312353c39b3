"""What the caller and the zygote say to each other, and what a child's answer looks like.

Caller and zygote are joined by a pair of Unix sockets that keep messages whole (SEQPACKET), so no message is ever read
in parts; descriptors travel with them. A child only ever writes to a pipe of its own. Nothing is pickled in either
direction: messages and values are MessagePack, and foreign bytes meet a decoder that knows what it expects.
"""

import socket
from collections.abc import Sequence

import msgspec

MOST_ARGUMENT_BYTES = 128 * 1024  # a message must fit the buffer of a socket, usually 208 KiB
MOST_MESSAGE_BYTES = MOST_ARGUMENT_BYTES + 16 * 1024
MOST_DESCRIPTORS = 3  # the pipe of the answer, the file, and the line of asks
REPLY_LENGTH_BYTES = 8  # before each reply of a child that sits

# A child's answer begins with RUNNING, written when all walls stand and before foreign work begins, so a child that
# failed in our own part of it can be told from one that failed in its work. Then comes one of the others; from a child
# that sits one for each ask, each with its length before it.
RUNNING = b"+"
VALUE = b"="
RAISED = b"!"
OUT_OF_MEMORY = b"M"


class Guards(msgspec.Struct, frozen=True, kw_only=True):
    """What holds a child back on this machine, as tried out and not as hoped."""

    seccomp: bool  # system calls that a pure function does not need are refused
    landlock: int  # which version keeps it from other files; 0 means that it may read what the service may read
    network_namespace: bool  # it lives in a network without devices, whatever else fails

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of those that this machine does not give, for people."""
        held = {"seccomp": self.seccomp, "landlock": self.landlock > 0, "network namespace": self.network_namespace}
        return tuple(name for name, holds in held.items() if not holds)


class Setup(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first message to a zygote: what to import and to call, and which folders a child may read."""

    preload: tuple[str, ...]
    readable: tuple[str, ...]
    pairs: bool = False  # whether a child may make two sockets that are joined to each other
    warm: str = ""  # module:qualified.name of what is called once, in the zygote itself
    warm_arguments: bytes = b""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Which function a child is to run."""

    function: str  # module:qualified.name
    arguments: bytes
    cpu_seconds: int


class Order(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Make a child. With it come the pipe for the answer and, perhaps, a file; and, for a child that sits, its asks."""

    number: int
    ask: Ask | None  # none for a child that sits: it is asked on a line of its own
    has_file: bool
    memory_bytes: int
    cpu_seconds: int  # of its whole life
    seconds: float | None  # after which the zygote kills it; whoever asks a child that sits keeps the time


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Kill that child, if it still runs."""

    number: int


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The zygote has imported what it should and takes orders."""

    guards: Guards


class NotReady(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The zygote could not make itself ready, and ends."""

    reason: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A child is gone: how, at what cost, and whether it was killed for being late."""

    number: int
    exit_code: int  # or the number of the signal that ended it, made negative
    cpu_seconds: float
    late: bool


class NotBegun(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """No child could be made for an order."""

    number: int
    reason: str


ToZygote = Setup | Order | Stop
ToCaller = Ready | NotReady | Ended | NotBegun


def new_line() -> tuple[socket.socket, socket.socket]:
    """Two ends that keep messages whole. Ours never blocks, and has room for one message at least."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MOST_MESSAGE_BYTES)
    return ours, theirs


def send(line: socket.socket, message: ToZygote | ToCaller, descriptors: Sequence[int] = ()) -> None:
    """Send one message whole, or raise OSError."""
    socket.send_fds(line, [msgspec.msgpack.encode(message)], descriptors)


def hear_order(line: socket.socket) -> tuple[ToZygote, list[int]] | None:
    """The next message to the zygote; None when the caller is gone."""
    words, descriptors, flags, _ = socket.recv_fds(line, MOST_MESSAGE_BYTES, MOST_DESCRIPTORS)
    if not words:
        return None
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        raise OSError("a message was cut short")
    return msgspec.msgpack.decode(words, type=ToZygote), descriptors


def hear_report(line: socket.socket) -> ToCaller | None:
    """The next message to the caller; None when the zygote is gone. Raises BlockingIOError when there is none yet."""
    words = line.recv(MOST_MESSAGE_BYTES)
    return msgspec.msgpack.decode(words, type=ToCaller) if words else None
