"""How a call can end.

With a value; or with one of the errors below. Those that are `Invalid` are answers about the work: the same bytes will
end the same way, so they are not worth another try. Those that are `Unavailable` are about us, or about the machine: a
child can bring about a kill itself, so another try then costs one of the attempts. Everything a child says is hostile
until it has passed the decoder, and its words are shown as plain text, cut short.
"""

import signal
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from penstock.kernel.errors import Invalid, TooLarge, Unavailable
from penstock.kernel.sandbox import wire

T = TypeVar("T")

MOST_NAME_CHARACTERS = 100
MOST_TEXT_CHARACTERS = 500


class SandboxedFailure(Invalid):
    """The function that was run in the sandbox raised an error."""

    code = "SANDBOX_FAILED"
    message = "The work in the sandbox failed with {kind}: {text}"
    message_zh = "沙箱中的处理失败，错误类型 {kind}：{text}"
    hint = "The file is most likely broken or of another kind than it claims; check it with the program that made it."
    hint_zh = "文件很可能已损坏，或与其声称的类型不符；请用生成它的程序检查。"


class SandboxTimedOut(Invalid):
    """The work in the sandbox took longer than it may."""

    code = "SANDBOX_TIMED_OUT"
    message = "The work in the sandbox did not end within {seconds:g} s."
    message_zh = "沙箱中的处理未能在 {seconds:g} 秒内结束。"
    hint = "Send a smaller or simpler file."
    hint_zh = "请提供更小或更简单的文件。"


class SandboxOutOfCpu(Invalid):
    """The work in the sandbox used more processor time than it may."""

    code = "SANDBOX_OUT_OF_CPU"
    message = "The work in the sandbox used up its {seconds} s of processor time."
    message_zh = "沙箱中的处理用尽了 {seconds} 秒的处理器时间。"
    hint = "Send a smaller or simpler file."
    hint_zh = "请提供更小或更简单的文件。"


class SandboxOutOfMemory(Invalid):
    """The work in the sandbox wanted more memory than it may have."""

    code = "SANDBOX_OUT_OF_MEMORY"
    message = "The work in the sandbox needed more than its {memory_bytes} bytes of memory."
    message_zh = "沙箱中的处理所需内存超过了允许的 {memory_bytes} 字节。"
    hint = "Send a smaller or simpler file."
    hint_zh = "请提供更小或更简单的文件。"


class SandboxKilled(Unavailable):
    """The process in the sandbox was killed by somebody else, such as a machine that is out of memory."""

    code = "SANDBOX_KILLED"
    message = "The work in the sandbox was killed from outside."
    message_zh = "沙箱中的处理被外部终止。"
    hint = "Most likely the machine was out of memory; try again, and give it more, or let less run at once."
    hint_zh = "很可能是机器内存不足；请重试，并增加内存或减少同时运行的任务。"


class SandboxCrashed(Invalid):
    """The process in the sandbox died or left without an answer."""

    code = "SANDBOX_CRASHED"
    message = "The work in the sandbox ended without an answer: {how}."
    message_zh = "沙箱中的处理没有给出结果就结束了：{how}。"
    hint = "The file makes its reader crash; check it with the program that made it."
    hint_zh = "该文件会使读取程序崩溃；请用生成它的程序检查。"


class SandboxTooMuch(Invalid):
    """The answer from the sandbox is larger than it may be."""

    code = "SANDBOX_TOO_MUCH"
    message = "The answer from the sandbox is over {most_bytes} bytes."
    message_zh = "沙箱给出的结果超过了 {most_bytes} 字节。"
    hint = "Send a smaller or simpler file."
    hint_zh = "请提供更小或更简单的文件。"


class SandboxBadAnswer(Invalid):
    """The answer from the sandbox is not what the function promises to return."""

    code = "SANDBOX_BAD_ANSWER"
    message = "The answer from the sandbox cannot be understood: {reason}."
    message_zh = "无法理解沙箱给出的结果：{reason}。"
    hint = "The file may have taken over its reader; treat it as dangerous."
    hint_zh = "该文件可能已控制其读取程序；请将其视为危险文件。"


class SandboxLost(Unavailable):
    """The sandbox itself went away while it worked; the next call starts another."""

    code = "SANDBOX_LOST"
    message = "The sandbox went away: {reason}."
    message_zh = "沙箱已不可用：{reason}。"
    hint = "Try again; if it happens often, look for what kills processes on this machine."
    hint_zh = "请重试；如果经常发生，请检查本机上是什么在终止进程。"
    ours = True


class SandboxNotStarted(Unavailable):
    """The sandbox could not be made ready."""

    code = "SANDBOX_NOT_STARTED"
    message = "The sandbox could not be started: {reason}."
    message_zh = "无法启动沙箱：{reason}。"
    hint = "Run `penstock doctor` on this machine."
    hint_zh = "请在本机运行 `penstock doctor`。"
    ours = True


class SandboxUnsupported(Unavailable):
    """There is no sandbox on this operating system."""

    code = "SANDBOX_UNSUPPORTED"
    message = "Foreign files are only read inside a sandbox, and there is none for {system}."
    message_zh = "外来文件只能在沙箱中读取，而 {system} 上没有沙箱。"
    hint = "Run the workers on Linux, in a container for example."
    hint_zh = "请在 Linux 上运行工作进程，例如使用容器。"
    retryable = False


class SandboxFileUnreadable(Unavailable):
    """The file that should be given to the sandbox cannot be opened."""

    code = "SANDBOX_FILE_UNREADABLE"
    message = "The file {name} cannot be given to the sandbox: {reason}."
    message_zh = "无法把文件 {name} 交给沙箱：{reason}。"
    hint = "Check that the file is still there and that Penstock may read it."
    hint_zh = "请检查该文件是否仍然存在，以及 Penstock 是否有权读取。"


class SandboxArgumentsTooLarge(TooLarge):
    """The arguments of a sandboxed call are over their bound."""

    code = "SANDBOX_ARGUMENTS_TOO_LARGE"
    message = "The arguments for the sandbox take {size_bytes} bytes; the most is {most_bytes}."
    message_zh = "传给沙箱的参数有 {size_bytes} 字节，上限为 {most_bytes} 字节。"
    hint = "Give what is large as a file."
    hint_zh = "请以文件形式提供较大的内容。"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What one call may use. Memory is counted over what the zygote has mapped, and a mapped file counts."""

    memory_bytes: int = 512 * 1024 * 1024
    cpu_seconds: int = 10  # the kernel counts whole seconds only
    seconds: float = 20.0
    result_bytes: int = 1024 * 1024  # a decoded answer can take a hundred times as much, so larger ones are asked for

    def __post_init__(self) -> None:
        if min(self.memory_bytes, self.cpu_seconds, self.seconds, self.result_bytes) <= 0:
            raise ValueError(f"bounds must be above zero: {self}")


def judge(ended: wire.Ended, answer: bytes, limits: Bounds, returns: type[T]) -> T:
    """The value that a child gave, or the error that tells how it ended. How it died counts before what it said."""
    if not answer.startswith(wire.RUNNING):
        raise not_begun(answer)
    said = answer.removeprefix(wire.RUNNING)
    if ended.late or ended.exit_code or not said:
        raise death(ended, limits, most_cpu_seconds=limits.cpu_seconds)
    return value_of(said, limits, returns)


def ended_of(report: wire.Ended | wire.NotBegun | None) -> wire.Ended:
    """The end of a child, where there was one: of no report, the zygote is gone."""
    if report is None:
        raise SandboxLost(reason="its process ended")
    if isinstance(report, wire.NotBegun):
        raise SandboxLost(reason=f"no child could be made ({report.reason})")
    return report


def not_begun(words: bytes) -> SandboxLost:
    """The end of a child that did not touch the file yet, so nothing can be said about that."""
    return SandboxLost(reason=f"a child ended before its work began {_plain(words.decode(errors='replace'))}")


def death(ended: wire.Ended, limits: Bounds, *, most_cpu_seconds: int) -> Invalid | Unavailable:
    """How a child died that gave no answer, or none that counts; `most_cpu_seconds` is for all of its life."""
    if ended.late:
        return SandboxTimedOut(seconds=limits.seconds)
    if ended.exit_code >= 0:
        return SandboxCrashed(how=f"exit status {ended.exit_code}")
    name = _signal_name(-ended.exit_code)
    if name == "SIGXCPU" or (name == "SIGKILL" and ended.cpu_seconds >= most_cpu_seconds):
        return SandboxOutOfCpu(seconds=limits.cpu_seconds)
    if name == "SIGKILL":  # not by us: the kernel kills like this when the machine is out of memory
        return SandboxKilled()
    return SandboxCrashed(how=name)


def value_of(said: bytes, limits: Bounds, returns: type[T]) -> T:
    """The value that a child says, or the error that it tells of."""
    kind, body = said[:1], said[1:]
    try:
        if kind == wire.VALUE:
            return msgspec.msgpack.decode(body, type=returns)
        name, text = msgspec.msgpack.decode(body, type=tuple[str, str]) if kind == wire.RAISED else ("", "")
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise SandboxBadAnswer(reason=_plain(str(error))) from error
    if kind == wire.RAISED:
        raise SandboxedFailure(kind=_plain(name, MOST_NAME_CHARACTERS), text=_plain(text))
    if kind == wire.OUT_OF_MEMORY:
        raise SandboxOutOfMemory(memory_bytes=limits.memory_bytes)
    raise SandboxBadAnswer(reason="it begins with an unknown mark")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _plain(text: str, most: int = MOST_TEXT_CHARACTERS) -> str:
    """Foreign words as one line that cannot steer a terminal or forge a line of a log."""
    shown = "".join(each if each.isprintable() else " " for each in text[:most])
    return shown + "…" if len(text) > most else shown
