"""Circuit breaker: stops calling something that keeps failing, so that not every caller waits for it to fail again.

Closed, it lets every call through. After several failures in a row it opens: calls fail at once with
`CircuitBreakerOpen`. After its rest it is half open: one call goes through while the others still fail. That call
closes it, or the rest starts over. Health pages show `name`, `open` and `reason`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from penstock.kernel.clock import Clock
from penstock.kernel.errors import Unavailable, in_words


class CircuitBreakerOpen(Unavailable):
    """Something failed several times in a row, so it was not tried this time."""

    code = "BREAKER_OPEN"
    message = "{name} is left alone for a moment, because it failed several times in a row: {reason}"
    hint = "It is tried again by itself within seconds."
    message_zh = "{name} 连续多次失败，暂停调用：{reason}"
    hint_zh = "几秒后系统会自动重试。"
    ours = True  # nothing was tried, so no attempt is used up


class CircuitBreaker:
    """Stands before one thing that may be away. One process's own: nobody else's failures count."""

    def __init__(self, name: str, clock: Clock, *, after_failures: int = 3, rest_seconds: float = 5.0) -> None:
        self.name = name
        self._clock = clock
        self._after_failures = after_failures
        self._rest = timedelta(seconds=rest_seconds)
        self._failures = 0
        self._reason = ""
        self._opened_at: datetime | None = None

    @property
    def open(self) -> bool:
        """Whether it has been found away and not yet found back; a half-open breaker is open."""
        return self._opened_at is not None

    @property
    def reason(self) -> str:
        """Why it is open, in the words of the last failure; empty when it is closed."""
        return self._reason if self.open else ""

    @contextmanager
    def trying(self, *faults: type[Exception], words: Callable[[Exception], str] = in_words) -> Iterator[None]:
        """One try. These errors say that the thing is away; a return or any other error, that it answers.

        Being cancelled says nothing. `words` puts a fault in words for `reason`, which everybody may see.
        """
        alone = self._let_through()
        try:
            yield
        except faults as error:
            self._failed(words(error), alone=alone)
            raise
        except Exception:
            self._answered()
            raise
        else:
            self._answered()

    def _let_through(self) -> bool:
        """Whether this try goes alone, to see for all; raises when there is to be none."""
        if self._opened_at is None:
            return False
        now = self._clock.now()
        # Asked from both sides: a clock that was put back must not make the rest longer.
        if self._opened_at <= now < self._opened_at + self._rest:
            raise CircuitBreakerOpen(name=self.name, reason=self._reason)
        self._opened_at = now  # and not a flag: a try that hangs, or was cancelled, lets another follow after a rest
        return True

    def _failed(self, reason: str, *, alone: bool) -> None:
        self._failures += 1
        self._reason = reason
        opens = self._opened_at is None and self._failures >= self._after_failures
        if opens or alone:  # others began before it opened: they must not make the rest longer
            self._opened_at = self._clock.now()

    def _answered(self) -> None:
        self._failures = 0
        self._opened_at = None
