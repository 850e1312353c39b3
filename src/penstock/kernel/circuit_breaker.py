"""Circuit breaker: stops calling a service that keeps failing, so that callers fail fast instead of waiting.

Closed, it lets every call through. After several failures in a row it opens: calls fail at once with
`CircuitBreakerOpen`. After `reset_seconds` it is half open: one call goes through while the others still fail. That
call closes it, or starts the wait again. Health pages show `name`, `open` and `reason`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from penstock.kernel.clock import Clock
from penstock.kernel.errors import Unavailable, error_text


class CircuitBreakerOpen(Unavailable):
    """A service failed several times in a row, so it was not called this time."""

    code = "BREAKER_OPEN"
    message = "{name} is not called for now, because it failed several times in a row: {reason}"
    hint = "Retried automatically within seconds."
    message_zh = "{name} 连续多次失败，暂停调用：{reason}"
    hint_zh = "几秒后系统会自动重试。"
    internal_outage = True  # nothing was called, so no attempt is used up


class CircuitBreaker:
    """Guards the calls of one process to one service; failures of other processes do not count."""

    def __init__(self, name: str, clock: Clock, *, failure_threshold: int = 3, reset_seconds: float = 5.0) -> None:
        self.name = name
        self._clock = clock
        self._failure_threshold = failure_threshold
        self._reset_after = timedelta(seconds=reset_seconds)
        self._failures = 0
        self._reason = ""
        self._opened_at: datetime | None = None

    @property
    def open(self) -> bool:
        """Whether the service is considered down; a half-open breaker is open."""
        return self._opened_at is not None

    @property
    def reason(self) -> str:
        """The text of the last failure while the breaker is open; empty when it is closed."""
        return self._reason if self.open else ""

    @contextmanager
    def guard(self, *faults: type[Exception], describe: Callable[[Exception], str] = error_text) -> Iterator[None]:
        """Guard one call. The errors in `faults` count as failures; a return or any other error counts as success.

        A cancelled call counts as neither. `describe` turns a fault into the public text of `reason`.
        """
        is_probe = self._admit()
        try:
            yield
        except faults as error:
            self._record_failure(describe(error), is_probe=is_probe)
            raise
        except Exception:
            self._record_success()
            raise
        else:
            self._record_success()

    def _admit(self) -> bool:
        """Whether this call is the probe of a half-open breaker; raises when the breaker is open."""
        if self._opened_at is None:
            return False
        now = self._clock.now()
        # Compared on both sides: a clock that was set back must not make the wait longer.
        if self._opened_at <= now < self._opened_at + self._reset_after:
            raise CircuitBreakerOpen(name=self.name, reason=self._reason)
        self._opened_at = now  # a time, not a flag: after a probe that hangs or is cancelled, another one follows
        return True

    def _record_failure(self, reason: str, *, is_probe: bool) -> None:
        self._failures += 1
        self._reason = reason
        opens = self._opened_at is None and self._failures >= self._failure_threshold
        if opens or is_probe:  # calls that began before it opened must not make the wait longer
            self._opened_at = self._clock.now()

    def _record_success(self) -> None:
        self._failures = 0
        self._opened_at = None
