"""How a sandboxed call can fail.

Errors that are `Invalid` are about the work: the same bytes fail the same way, so a retry is pointless. Errors that are
`Unavailable` are about us or the machine. A child can provoke its own kill, so a retry of `SandboxKilled` costs one of
the attempts; a retry of the others does not.
"""

from penstock.kernel.errors import Invalid, TooLarge, Unavailable


class SandboxedFailure(Invalid):
    """The function that ran in the sandbox raised an error."""

    code = "SANDBOX_FAILED"
    message = "The sandboxed call raised {kind}: {text}"
    message_zh = "沙箱中的调用抛出 {kind}：{text}"
    hint = "The file is most likely corrupt or not of the type it claims; check it with the program that wrote it."
    hint_zh = "文件很可能已损坏，或与其声称的类型不符；请用生成它的程序检查。"


class SandboxTimedOut(Invalid):
    """The sandboxed call exceeded its time limit."""

    code = "SANDBOX_TIMED_OUT"
    message = "The sandboxed call did not end within {seconds:g} s."
    message_zh = "沙箱中的调用未能在 {seconds:g} 秒内结束。"
    hint = "Send a smaller or simpler file."
    hint_zh = "请提供更小或更简单的文件。"


class SandboxOutOfCpu(Invalid):
    """The sandboxed call exceeded its CPU time limit."""

    code = "SANDBOX_OUT_OF_CPU"
    message = "The sandboxed call used up its {seconds} s of CPU time."
    message_zh = "沙箱中的调用用尽了 {seconds} 秒的 CPU 时间。"
    hint = "Send a smaller or simpler file."
    hint_zh = "请提供更小或更简单的文件。"


class SandboxOutOfMemory(Invalid):
    """The sandboxed call exceeded its memory limit."""

    code = "SANDBOX_OUT_OF_MEMORY"
    message = "The sandboxed call needed more than its {memory_bytes} bytes of memory."
    message_zh = "沙箱中的调用所需内存超过了允许的 {memory_bytes} 字节。"
    hint = "Send a smaller or simpler file."
    hint_zh = "请提供更小或更简单的文件。"


class SandboxKilled(Unavailable):
    """Something other than the sandbox killed the child process, such as the kernel's OOM killer."""

    code = "SANDBOX_KILLED"
    message = "The sandboxed process was killed from outside."
    message_zh = "沙箱中的进程被外部终止。"
    hint = "Most likely the machine ran out of memory: retry, and add memory or run fewer calls at once."
    hint_zh = "很可能是机器内存不足：请重试，并增加内存或减少同时运行的调用。"


class SandboxCrashed(Invalid):
    """The child process died or exited without a result."""

    code = "SANDBOX_CRASHED"
    message = "The sandboxed process ended without a result: {how}."
    message_zh = "沙箱中的进程没有给出结果就结束了：{how}。"
    hint = "The file crashes its parser; check it with the program that wrote it."
    hint_zh = "该文件会使解析程序崩溃；请用生成它的程序检查。"


class SandboxTooMuch(Invalid):
    """The result of the sandboxed call exceeds its size limit."""

    code = "SANDBOX_TOO_MUCH"
    message = "The result of the sandboxed call is over {most_bytes} bytes."
    message_zh = "沙箱中调用的结果超过了 {most_bytes} 字节。"
    hint = "Send a smaller or simpler file."
    hint_zh = "请提供更小或更简单的文件。"


class SandboxBadAnswer(Invalid):
    """The result of the sandboxed call does not decode as the return type of its function."""

    code = "SANDBOX_BAD_ANSWER"
    message = "The result of the sandboxed call cannot be decoded: {reason}."
    message_zh = "无法解码沙箱中调用的结果：{reason}。"
    hint = "The file may have taken over its parser; treat it as malicious."
    hint_zh = "该文件可能已控制其解析程序；请将其视为恶意文件。"


class SandboxLost(Unavailable):
    """The sandbox itself was lost during the call; the next call starts another."""

    code = "SANDBOX_LOST"
    message = "The sandbox was lost: {reason}."
    message_zh = "沙箱已不可用：{reason}。"
    hint = "Retry; if it happens often, find out what kills processes on this machine."
    hint_zh = "请重试；如果经常发生，请检查本机上是什么在终止进程。"
    internal_outage = True


class SandboxNotStarted(Unavailable):
    """The sandbox could not be started."""

    code = "SANDBOX_NOT_STARTED"
    message = "The sandbox could not be started: {reason}."
    message_zh = "无法启动沙箱：{reason}。"
    hint = "Run `penstock doctor` on this machine."
    hint_zh = "请在本机运行 `penstock doctor`。"
    internal_outage = True


class SandboxUnsupported(Unavailable):
    """There is no sandbox on this operating system."""

    code = "SANDBOX_UNSUPPORTED"
    message = "Untrusted files are only parsed inside a sandbox, and there is none for {system}."
    message_zh = "不受信任的文件只能在沙箱中解析，而 {system} 上没有沙箱。"
    hint = "Run the workers on Linux, for example in a container."
    hint_zh = "请在 Linux 上运行工作进程，例如使用容器。"
    retryable = False


class SandboxFileUnreadable(Unavailable):
    """The file for the sandbox cannot be opened."""

    code = "SANDBOX_FILE_UNREADABLE"
    message = "The file {name} cannot be passed to the sandbox: {reason}."
    message_zh = "无法把文件 {name} 交给沙箱：{reason}。"
    hint = "Check that the file exists and that Penstock may read it."
    hint_zh = "请检查该文件是否仍然存在，以及 Penstock 是否有权读取。"


class SandboxArgumentsTooLarge(TooLarge):
    """The arguments of a sandboxed call exceed their size limit."""

    code = "SANDBOX_ARGUMENTS_TOO_LARGE"
    message = "The arguments for the sandbox take {size_bytes} bytes; the limit is {most_bytes}."
    message_zh = "传给沙箱的参数有 {size_bytes} 字节，上限为 {most_bytes} 字节。"
    hint = "Pass large inputs as a file."
    hint_zh = "请以文件形式传入较大的内容。"
