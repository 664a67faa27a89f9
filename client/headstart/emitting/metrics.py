"""Exports the counts of emitters to Prometheus, if prometheus-client is installed.

Counters are read from `stats()` at each scrape, so they cost `emit()` nothing.
Names: headstart_client_emitted_total, _acknowledged_total, _lost_total, _dropped_total,
_scrubbed_total; headstart_client_waiting; and the histogram headstart_client_emit_seconds.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final, Protocol
from weakref import WeakSet

BOUNDS_US: Final = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 100_000, 1_000_000)
"""Upper bounds of the histogram, in microseconds."""
_BOUNDS_NS: Final = tuple(bound * 1_000 for bound in BOUNDS_US)
_COUNTED: Final = {
    "emitted": "events that emit() accepted",
    "acknowledged": "events that the broker acknowledged",
    "lost": "events lost for good",
    "dropped": "events dropped at the limit",
    "scrubbed": "secrets removed from events",
}


class Timing:
    """A histogram of durations; the caller holds a lock."""

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS_NS) + 1)
        self.total_ns = 0

    def note(self, duration_ns: int) -> None:
        """Count one duration, in nanoseconds."""
        self.counts[bisect_left(_BOUNDS_NS, duration_ns)] += 1
        self.total_ns += duration_ns

    def add(self, other: Timing) -> None:
        """Add the counts of another histogram."""
        self.counts = list(map(int.__add__, self.counts, other.counts))
        self.total_ns += other.total_ns


class Counted(Protocol):
    """An emitter, as far as this module uses it."""

    @property
    def timing(self) -> Timing:
        """Durations of its `emit()`."""
        ...

    def stats(self) -> dict[str, int]:
        """Return its counts."""
        ...


class _Collector:
    """Sums over the emitters of this process, also closed ones."""

    def __init__(self) -> None:
        self.open: WeakSet[Counted] = WeakSet()
        self.closed: Counter[str] = Counter()
        self.timing = Timing()
        self.lock = threading.Lock()
        self.registered = False

    def collect(self) -> Iterator[Any]:
        """Yield the metric families, for prometheus-client."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        counts, timing = self.sums()
        for name, meaning in _COUNTED.items():
            yield CounterMetricFamily(f"headstart_client_{name}", meaning, value=counts[name])
        waiting = "events that the broker has not acknowledged yet"
        yield GaugeMetricFamily("headstart_client_waiting", waiting, value=counts["waiting"])
        buckets, total = [], 0
        for bound, count in zip((*BOUNDS_US, None), timing.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound is None else str(bound / 1e6), total))
        yield HistogramMetricFamily(
            "headstart_client_emit_seconds",
            "how long emit() took",
            buckets=buckets,
            sum_value=timing.total_ns / 1e9,
        )

    def sums(self) -> tuple[Counter[str], Timing]:
        """Return the counts of all emitters, and the durations of their `emit()`."""
        with self.lock:
            counts, timing = self.closed.copy(), Timing()
            timing.add(self.timing)
            for emitter in self.open:
                counts.update(emitter.stats())
                timing.add(emitter.timing)
        return counts, timing


_collector = _Collector()


def watch(emitter: Counted) -> None:
    """Export an emitter's counts, if prometheus-client is installed."""
    with _collector.lock:
        _collector.open.add(emitter)
        if _collector.registered or find_spec("prometheus_client") is None:
            return
        _collector.registered = True
    from prometheus_client import REGISTRY

    REGISTRY.register(_collector)


def forget(emitter: Counted) -> None:
    """Keep the counts of an emitter that is being closed. Idempotent."""
    with _collector.lock:
        if emitter not in _collector.open:
            return
        _collector.open.discard(emitter)
        counts = emitter.stats()
        counts.pop("waiting")  # the spool's next shipper sends them
        _collector.closed.update(counts)
        _collector.timing.add(emitter.timing)


def reset() -> None:
    """Start over in a forked child: the counts are the parent's."""
    _collector.lock = threading.Lock()
    _collector.closed.clear()
    _collector.timing = Timing()
