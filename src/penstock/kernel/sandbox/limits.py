"""Resource limits of one sandboxed call."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """What one call may use.

    `memory_bytes` counts address space beyond what the zygote has mapped; a mapped file counts.
    """

    memory_bytes: int = 512 * 1024 * 1024
    cpu_seconds: int = 10  # RLIMIT_CPU counts whole seconds only
    seconds: float = 20.0
    result_bytes: int = 1024 * 1024  # a decoded result can take a hundred times as much, so raise it on purpose

    def __post_init__(self) -> None:
        if min(self.memory_bytes, self.cpu_seconds, self.seconds, self.result_bytes) <= 0:
            raise ValueError(f"limits must be above zero: {self}")


DEFAULT_LIMITS = SandboxLimits()
