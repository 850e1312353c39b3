"""What the caller sends to a child: a function by its name, plain values, and an open file."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, get_type_hints

import msgspec

from penstock.kernel.sandbox import wire
from penstock.kernel.sandbox.errors import SandboxArgumentsTooLarge, SandboxFileUnreadable
from penstock.kernel.sandbox.limits import SandboxLimits

T = TypeVar("T")


def new_call(function: Callable[..., object], arguments: tuple[object, ...], limits: SandboxLimits) -> wire.CallRequest:
    """The request for one call; raises on a mistake of the caller."""
    name, packed = qualified_name(function), msgspec.msgpack.encode(arguments)
    if len(packed) > wire.MAX_ARGUMENT_BYTES:
        raise SandboxArgumentsTooLarge(size_bytes=len(packed), most_bytes=wire.MAX_ARGUMENT_BYTES)
    return wire.CallRequest(function=name, arguments=packed, cpu_seconds=limits.cpu_seconds)


@contextmanager
def open_descriptors(file: Path | None) -> Iterator[list[int]]:
    """The file as a list of at most one open descriptor, for the length of the block."""
    if file is None:
        yield []
        return
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # opening a FIFO must not block
    except OSError as error:
        raise SandboxFileUnreadable(name=file.name, reason=error.strerror) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SandboxFileUnreadable(name=file.name, reason="it is not a regular file")
        yield [descriptor]
    finally:
        os.close(descriptor)


def absolute_path(file: Path | None) -> str:
    """The path by which a child may open its file; empty without one."""
    return "" if file is None else str(file.absolute())


def qualified_name(function: Callable[..., object]) -> str:
    """`module:qualified.name`, by which a child imports the function."""
    module, path = getattr(function, "__module__", "__main__"), getattr(function, "__qualname__", "<nameless>")
    if module == "__main__" or "<" in path:
        raise TypeError(f"{function!r} cannot be imported by its name: the sandbox runs functions of modules")
    return f"{module}:{path}"


def return_type(function: Callable[..., T]) -> type[T]:
    """The annotated return type, against which the result is decoded."""
    hints = get_type_hints(function)
    if "return" not in hints:
        raise TypeError(f"{function!r} has no return annotation, so its result could not be checked")
    returned: type[T] = hints["return"]
    return returned
