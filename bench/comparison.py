"""Interleaved rounds of a measurement and its reference. The ratio is the median of the rounds, with its range."""

import statistics
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace

ROUNDS = 3

Measure = Callable[[], Awaitable[float]]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A measurement and its reference. `ratio` is ours divided by the reference, the median of the rounds."""

    what: str
    unit: str
    ours: float
    reference: float
    ratio: float
    spread: tuple[float, float]
    at_least: float | None = None
    at_most: float | None = None
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether the target is met, where there is one."""
        enough = self.at_least is None or self.ratio >= self.at_least
        return enough and (self.at_most is None or self.ratio <= self.at_most)

    def noted(self, **notes: float) -> "Finding":
        """A copy with additional figures."""
        return replace(self, notes={name.replace("_", " "): value for name, value in notes.items()})

    def line(self) -> str:
        """The finding as one line of text."""
        target = f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"
        low, high = self.spread
        verdict = "met" if self.met else "MISSED"
        notes = "".join(f"; {name} {value:,.4g}" for name, value in self.notes.items())
        return (
            f"{self.what}: {self.ours:,.4g} beside {self.reference:,.4g} {self.unit}, "
            f"ratio {self.ratio:.2f} ({low:.2f}-{high:.2f}), target {target}: {verdict}{notes}"
        )

    def as_dict(self) -> dict[str, object]:
        """For the result file."""
        return asdict(self) | {"met": self.met}


async def compare(what: str, unit: str, *, ours: Measure, reference: Measure, **target: float) -> Finding:
    """Measure both in turn, three times, and compare by round, so that a slow moment affects both."""
    return summary(what, unit, [(await reference(), await ours()) for _ in range(ROUNDS)], **target)


def summary(what: str, unit: str, pairs: list[tuple[float, float]], **target: float) -> Finding:
    """Summarize rounds of (reference, ours)."""
    ratios = sorted(mine / theirs for theirs, mine in pairs)
    return Finding(
        what=what,
        unit=unit,
        ours=statistics.median(mine for _, mine in pairs),
        reference=statistics.median(theirs for theirs, _ in pairs),
        ratio=statistics.median(ratios),
        spread=(ratios[0], ratios[-1]),
        **target,  # type: ignore[arg-type]  # at_least or at_most
    )


def p95(seconds: list[float]) -> float:
    """The 95th percentile, in milliseconds."""
    return statistics.quantiles(seconds, n=20)[-1] * 1000
