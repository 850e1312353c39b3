"""Prometheus metrics of model calls. Labels are server names and outcomes, so there are few series."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.adapters.llm.completions import Completion

BUCKETS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
BOUNDS = [*map(str, BUCKETS), "+Inf"]


class LlmMetrics(Collector):
    """The model metrics of one process."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str]] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._cost: dict[str, float] = {}
        self._spread: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def count_call(self, server: str, outcome: str, seconds: float) -> None:
        """Count a call by its outcome."""
        self._calls[server, outcome] += 1
        self._spread.setdefault(server, [0] * len(BOUNDS))[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[server] = self._seconds.get(server, 0.0) + seconds

    def count_usage(self, server: str, completion: Completion, cost: float | None) -> None:
        """Count tokens and cost of a completion, whether or not it is usable."""
        used = {
            "prompt": completion.prompt_tokens,
            "completion": completion.completion_tokens,
            "cached": completion.cached_tokens,
        }
        for kind, number in used.items():
            self._tokens[server, kind] += number or 0
        self._cost[server] = self._cost.get(server, 0.0) + (cost or 0.0)

    def collect(self) -> Iterable[Metric]:
        """Yield the metric families."""
        words = "Calls to language models by outcome."
        calls = CounterMetricFamily("penstock_llm_calls_total", words, labels=["server", "outcome"])
        for labels, number in self._calls.items():
            calls.add_metric(labels, number)
        yield calls
        words = "Tokens of questions and answers as reported by the servers; cached ones are part of the prompt's."
        tokens = CounterMetricFamily("penstock_llm_tokens_total", words, labels=["server", "kind"])
        for labels, number in self._tokens.items():
            tokens.add_metric(labels, number)
        yield tokens
        cost = CounterMetricFamily(
            "penstock_llm_cost_total", "Cost of answers by the configured prices.", labels=["server"]
        )
        for server, amount in self._cost.items():
            cost.add_metric([server], amount)
        yield cost
        seconds = HistogramMetricFamily("penstock_llm_call_seconds", "Duration of calls.", labels=["server"])
        for server, spread in self._spread.items():
            seconds.add_metric([server], list(zip(BOUNDS, accumulate(spread), strict=True)), self._seconds[server])
        yield seconds
