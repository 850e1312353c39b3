"""What is asked of a child, as the caller puts it: a function by its name, plain values, and an open file."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, get_type_hints

import msgspec

from penstock.kernel.sandbox import wire
from penstock.kernel.sandbox.ends import Bounds, SandboxArgumentsTooLarge, SandboxFileUnreadable

T = TypeVar("T")


def new_ask(function: Callable[..., object], arguments: tuple[object, ...], limits: Bounds) -> wire.Ask:
    """What a child is asked, or the caller's own mistake as an error."""
    name, packed = name_of(function), msgspec.msgpack.encode(arguments)
    if len(packed) > wire.MOST_ARGUMENT_BYTES:
        raise SandboxArgumentsTooLarge(size_bytes=len(packed), most_bytes=wire.MOST_ARGUMENT_BYTES)
    return wire.Ask(function=name, arguments=packed, cpu_seconds=limits.cpu_seconds)


@contextmanager
def lent(file: Path | None) -> Iterator[list[int]]:
    """The file as a list of descriptors, for as long as the call takes."""
    if file is None:
        yield []
        return
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not make us wait
    except OSError as error:
        raise SandboxFileUnreadable(name=file.name, reason=error.strerror) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SandboxFileUnreadable(name=file.name, reason="it is not a regular file")
        yield [descriptor]
    finally:
        os.close(descriptor)


def name_of(function: Callable[..., object]) -> str:
    """How a child finds it."""
    module, path = getattr(function, "__module__", "__main__"), getattr(function, "__qualname__", "<nameless>")
    if module == "__main__" or "<" in path:
        raise TypeError(f"{function!r} cannot be found by its name: the sandbox runs functions of modules")
    return f"{module}:{path}"


def returned_by(function: Callable[..., T]) -> type[T]:
    """What it says that it returns."""
    hints = get_type_hints(function)
    if "return" not in hints:
        raise TypeError(f"{function!r} does not say what it returns, so an answer could not be checked")
    returned: type[T] = hints["return"]
    return returned
