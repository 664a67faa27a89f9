"""What a reader counts: the one list of its metrics, and their way into prometheus-client.

Where prometheus-client is installed, the sums over this process's readers are in its default
registry, collected when it is asked. Reading itself only counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple
from weakref import finalize


class ReaderMetric(NamedTuple):
    """One metric; `name` is its key in `stats()`, headstart_reader_NAME its name elsewhere."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str


METRICS: Final = (
    ReaderMetric("hits", "counter", "answers from the mirror"),
    ReaderMetric("misses", "counter", "answers that Redis was asked for"),
    ReaderMetric("failed", "counter", "questions that Redis did not answer"),
    ReaderMetric("stale", "counter", "answers that could not be confirmed within the bound"),
    ReaderMetric("announcements", "counter", "announcements of hashes that the mirror keeps"),
    ReaderMetric("changes", "counter", "values that became newer in the mirror"),
    ReaderMetric("evictions", "counter", "contexts that left the mirror for others"),
    ReaderMetric("connections", "counter", "times that the line for announcements was opened"),
    ReaderMetric("contexts", "gauge", "contexts in the mirror"),
    ReaderMetric("miss_seconds", "histogram", "round trips to Redis that answered, in seconds"),
)
"""Threads do not wait for each other to count: under many, `hits` may be a few short."""

BUCKETS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0)


class LatencyHistogram:
    """Counts of seconds by upper bound, and their sum."""

    def __init__(self, bounds: Sequence[float] = BUCKETS_S) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def add(self, other: LatencyHistogram) -> None:
        """Count all that another has."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def cumulative(self) -> list[tuple[str, int]]:
        """Return the counts as Prometheus has them: of all up to each bound."""
        bounds = [*map(str, self._bounds), "+Inf"]
        return [(bound, sum(self.counts[: n + 1])) for n, bound in enumerate(bounds)]


class ReaderCounts:
    """What one reader has counted; attributes are named like the metrics."""

    def __init__(self) -> None:
        self.hits = self.misses = self.failed = self.stale = 0
        self.announcements = self.changes = self.evictions = self.connections = self.contexts = 0
        self.miss_seconds = LatencyHistogram()

    def stats(self) -> dict[str, int]:
        """Return the counts by name; without the histogram."""
        return {m.name: getattr(self, m.name) for m in METRICS if m.kind != "histogram"}

    def add(self, other: ReaderCounts) -> None:
        """Count all that a reader had which is gone, but what it held."""
        for metric in METRICS:
            if metric.kind == "counter":
                total = getattr(self, metric.name) + getattr(other, metric.name)
                setattr(self, metric.name, total)
        self.miss_seconds.add(other.miss_seconds)


class _Collector:
    """The sums over all readers there are and were, as prometheus-client asks for them."""

    def __init__(self) -> None:
        self.counts: set[ReaderCounts] = set()
        self.gone = ReaderCounts()
        self.registered = False

    def forget(self, counts: ReaderCounts) -> None:
        """Keep what a reader that is gone has counted."""
        self.counts.discard(counts)
        self.gone.add(counts)

    def collect(self) -> Iterator[Any]:
        """Yield every metric. Part of prometheus-client's interface."""
        core = import_module("prometheus_client.core")
        all_of_them = [self.gone, *self.counts]
        families = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}
        for metric in METRICS:
            name = f"headstart_reader_{metric.name}"
            found = [getattr(counts, metric.name) for counts in all_of_them]
            if metric.kind != "histogram":
                yield families[metric.kind](name, metric.help, value=sum(found))
                continue
            total = LatencyHistogram()
            for histogram in found:
                total.add(histogram)
            yield core.HistogramMetricFamily(
                name, metric.help, buckets=total.cumulative(), sum_value=total.sum
            )


_collector: Final = _Collector()


def watch(reader: object, counts: ReaderCounts) -> None:
    """Measure a reader for as long as it lives; without prometheus-client, do nothing."""
    if not _collector.registered:
        try:
            registry = import_module("prometheus_client").REGISTRY
        except ImportError:
            return
        _collector.registered = True
        registry.register(_collector)
    _collector.counts.add(counts)
    finalize(reader, _collector.forget, counts).atexit = False
