"""Metrics of the readers: their list, and their export to prometheus-client.

If prometheus-client is installed, the sums over this process's readers are registered in its
default registry and collected at each scrape. Reading itself only counts.
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
    ReaderMetric("hits", "counter", "answers from the cache"),
    ReaderMetric("misses", "counter", "answers that Redis was queried for"),
    ReaderMetric("failed", "counter", "queries that Redis did not answer"),
    ReaderMetric("stale", "counter", "answers not confirmed within the staleness bound"),
    ReaderMetric("announcements", "counter", "announcements of hashes that are cached"),
    ReaderMetric("changes", "counter", "cached values that changed"),
    ReaderMetric("evictions", "counter", "contexts evicted from the cache"),
    ReaderMetric("connections", "counter", "connections opened for announcements"),
    ReaderMetric("contexts", "gauge", "contexts in the cache"),
    ReaderMetric(
        "miss_seconds", "histogram", "duration of successful round trips to Redis, in seconds"
    ),
)
"""Counted without a lock: with many threads `hits` may be a few short."""

BUCKETS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0)


class LatencyHistogram:
    """Counts of seconds by upper bound, and their sum."""

    def __init__(self, bounds: Sequence[float] = BUCKETS_S) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration, in seconds."""
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def add(self, other: LatencyHistogram) -> None:
        """Add the counts of another histogram."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def cumulative(self) -> list[tuple[str, int]]:
        """Return Prometheus buckets: the count of all durations up to each bound."""
        bounds = [*map(str, self._bounds), "+Inf"]
        return [(bound, sum(self.counts[: n + 1])) for n, bound in enumerate(bounds)]


class ReaderCounts:
    """Counts of one reader; attributes are named like the metrics."""

    def __init__(self) -> None:
        self.hits = self.misses = self.failed = self.stale = 0
        self.announcements = self.changes = self.evictions = self.connections = self.contexts = 0
        self.miss_seconds = LatencyHistogram()

    def stats(self) -> dict[str, int]:
        """Return the counts by name, without the histogram."""
        return {m.name: getattr(self, m.name) for m in METRICS if m.kind != "histogram"}

    def add(self, other: ReaderCounts) -> None:
        """Add the counters of a reader that was closed, not its gauges."""
        for metric in METRICS:
            if metric.kind == "counter":
                total = getattr(self, metric.name) + getattr(other, metric.name)
                setattr(self, metric.name, total)
        self.miss_seconds.add(other.miss_seconds)


class _Collector:
    """Sums over all present and former readers, for prometheus-client."""

    def __init__(self) -> None:
        self.counts: set[ReaderCounts] = set()
        self.closed = ReaderCounts()
        self.registered = False

    def forget(self, counts: ReaderCounts) -> None:
        """Keep the counts of a reader that was garbage-collected."""
        self.counts.discard(counts)
        self.closed.add(counts)

    def collect(self) -> Iterator[Any]:
        """Yield every metric family; called by prometheus-client."""
        core = import_module("prometheus_client.core")
        all_counts = [self.closed, *self.counts]
        families = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}
        for metric in METRICS:
            name = f"headstart_reader_{metric.name}"
            found = [getattr(counts, metric.name) for counts in all_counts]
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
    """Export a reader's counts; does nothing without prometheus-client."""
    if not _collector.registered:
        try:
            registry = import_module("prometheus_client").REGISTRY
        except ImportError:
            return
        _collector.registered = True
        registry.register(_collector)
    _collector.counts.add(counts)
    finalize(reader, _collector.forget, counts).atexit = False
