"""The metrics of a worker, and their exposition at `/metrics`.

They are counted once a batch, in plain integers; Prometheus's client is only used by a scrape.
docs/reference is generated from the list. The metrics of executors are in the client
(headstart/metrics.py, headstart/reader_metrics.py).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from headstart.thresholds.metrics import LatencyHistogram
from processing.records.dlq_limits import BatchExtent
from processing.worker_report import Report
from sinks.redis.stored_fields import EXPLAINED


class WorkerMetric(NamedTuple):
    """One metric as Prometheus shows it. `label`: the label that its values differ in, if any."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    label: str = ""


METRICS: Final = (
    WorkerMetric(
        "headstart_worker_ready", "gauge", "1: partitions are assigned, their rows restored"
    ),
    WorkerMetric("headstart_worker_stuck", "gauge", "1: it has work and makes no progress"),
    WorkerMetric("headstart_service_up", "gauge", "1: the service answers this worker", "service"),
    WorkerMetric("headstart_lag_records", "gauge", "records not yet taken in", "partition"),
    WorkerMetric(
        "headstart_held_back_records",
        "gauge",
        "offsets that an open transaction holds back, which is no lag",
        "partition",
    ),
    WorkerMetric("headstart_applied_offset", "gauge", "all below took effect", "partition"),
    WorkerMetric("headstart_batches_total", "counter", "batches that were committed"),
    WorkerMetric("headstart_records_total", "counter", "records of those batches"),
    WorkerMetric(
        "headstart_events_total", "counter", "events (history: thresholds) of those records"
    ),
    WorkerMetric(
        "headstart_rows_total",
        "counter",
        "rows new in Postgres (memory: episodes written), or sent to the changelog",
    ),
    WorkerMetric("headstart_dead_letters_total", "counter", "records and events refused"),
    WorkerMetric(
        "headstart_lost_records_total",
        "counter",
        "records that the topic's retention deleted before they were taken in",
    ),
    WorkerMetric("headstart_notices_total", "counter", "notices found in published thresholds"),
    WorkerMetric(
        "headstart_published_total",
        "counter",
        "thresholds (predictions: snapshots) that Redis was given",
    ),
    WorkerMetric(
        "headstart_redis_failures_total",
        "counter",
        "times that Redis took no thresholds or snapshot",
    ),
    WorkerMetric(
        "headstart_postgres_failures_total", "counter", "times that Postgres took no batch"
    ),
    WorkerMetric(
        "headstart_waiting_thresholds",
        "gauge",
        "contexts (predictions: models) that wait for Redis",
    ),
    WorkerMetric(
        "headstart_evicted_executors_total",
        "counter",
        "executors that a shared model has forgotten for others (predictions)",
    ),
    WorkerMetric(
        "headstart_redis_repairs_total",
        "counter",
        "values of Redis that were not what they should be, and were replaced",
        "reason",
    ),
    WorkerMetric(
        "headstart_redis_contested",
        "gauge",
        "contexts whose value something else keeps writing to Redis",
    ),
    WorkerMetric(
        "headstart_redis_kept",
        "gauge",
        "modes and overrides in Redis that no command set, kept because they restrict",
    ),
    WorkerMetric(
        "headstart_oldest_waiting_seconds",
        "gauge",
        "memory: age of the oldest row in the outbox",
    ),
    WorkerMetric(
        "headstart_vectors_missing",
        "gauge",
        "memory: episodes without a vector of the model, when last counted",
    ),
    WorkerMetric(
        "headstart_embedding_failures_total",
        "counter",
        "memory: times that the model gave no usable vectors",
    ),
    WorkerMetric(
        "headstart_policy_runs_total",
        "counter",
        "memory: finished runs that ranking policies have learned",
    ),
    WorkerMetric(
        "headstart_policy_versions_total", "counter", "memory: versions of policies trained"
    ),
    WorkerMetric(
        "headstart_judged_episodes_total",
        "counter",
        "memory: times that judgements changed an episode's usefulness",
    ),
    WorkerMetric(
        "headstart_forgotten_retrievals_total",
        "counter",
        "memory: rows of retrievals deleted because of their age",
    ),
    WorkerMetric(
        "headstart_packed_runs_total",
        "counter",
        "memory: runs whose events were packed",
    ),
    WorkerMetric(
        "headstart_merged_runs_total",
        "counter",
        "memory: repeated runs that were merged into one episode",
    ),
    WorkerMetric(
        "headstart_pruned_cases_total",
        "counter",
        "memory: episodes deleted beyond the limit of their user",
    ),
    WorkerMetric(
        "headstart_pruned_events_total",
        "counter",
        "memory: packed events deleted because of their age or number",
    ),
    WorkerMetric(
        "headstart_consolidation_age_seconds",
        "gauge",
        "memory: time since the last consolidation ended, or runs wait for the first; 0: not known",
    ),
    WorkerMetric(
        "headstart_quarantined_episodes",
        "gauge",
        "memory: quarantined episodes, when last counted",
    ),
    WorkerMetric(
        "headstart_batch_seconds",
        "histogram",
        "applying or storing records, until what follows is published or stored",
    ),
    WorkerMetric(
        "headstart_delay_seconds",
        "histogram",
        "from the Kafka timestamp of the last of these records until then",
    ),
)

BUCKETS_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0, 600.0)


def started() -> float:
    """Return the time at which a measurement begins, in seconds."""
    return time.perf_counter()


class WorkerCounts:
    """Counts of one worker since its process began."""

    def __init__(self) -> None:
        self.batches = self.records = self.events = self.rows = self.dead_letters = 0
        self.notices = self.lost = 0
        self.published = self.redis_failures = self.postgres_failures = self.waiting = 0
        self.evicted_executors = 0
        self.repaired: Counter[str] = Counter(dict.fromkeys([*EXPLAINED, "command"], 0))
        """Values of Redis that were replaced, by fault."""
        self.contested = self.kept = 0
        self.vectors_missing = self.embedding_failures = self.packed = 0
        self.merged = self.pruned_cases = self.pruned_events = 0
        self.consolidation_age_s = 0.0
        self.quarantined = 0
        self.policy_runs = self.policy_versions = self.judged = self.forgotten = 0
        self.batch, self.delay = LatencyHistogram(BUCKETS_S), LatencyHistogram(BUCKETS_S)

    def count_lost(self, records: int) -> None:
        """Count records that retention deleted before they were processed."""
        self.lost += records

    def count_batch(self, extent: BatchExtent, events: int) -> None:
        """Count a batch that is committed."""
        self.batches += 1
        self.records += extent.records
        self.events += events

    def observe_effect(self, extent: BatchExtent, begun: float) -> None:
        """Measure when records took effect for readers. `begun`: `started()` before them."""
        self.batch.observe(started() - begun)
        if extent.records:
            self.delay.observe(max(0.0, time.time() - extent.newest / 1000))


Values = int | float | LatencyHistogram | Mapping[str, int]


def values(
    report: Report, stuck: str | None, services: set[str], counts: WorkerCounts
) -> list[Values]:
    """Return the value of each metric, in the order of `METRICS`."""
    return [
        int(report.ready),
        int(stuck is not None),
        {name: int(name not in report.away) for name in sorted(services)},
        {str(partition): lag for partition, lag in sorted(report.lag.items())},
        {str(partition): held for partition, held in sorted(report.held_back.items())},
        {str(partition): offset for partition, offset in sorted(report.done.items())},
        counts.batches,
        counts.records,
        counts.events,
        counts.rows,
        counts.dead_letters,
        counts.lost,
        counts.notices,
        counts.published,
        counts.redis_failures,
        counts.postgres_failures,
        counts.waiting,
        counts.evicted_executors,
        dict(counts.repaired),
        counts.contested,
        counts.kept,
        report.oldest_s,
        counts.vectors_missing,
        counts.embedding_failures,
        counts.policy_runs,
        counts.policy_versions,
        counts.judged,
        counts.forgotten,
        counts.packed,
        counts.merged,
        counts.pruned_cases,
        counts.pruned_events,
        counts.consolidation_age_s,
        counts.quarantined,
        counts.batch,
        counts.delay,
    ]


class Exposition:
    """A worker's metrics, with those of its process, in Prometheus's text format."""

    def __init__(self, now: Callable[[], Sequence[Values]]) -> None:
        """`now`: returns the value of each metric of `METRICS`."""
        # Imported by the first scrape: every import makes a restart slower.
        from prometheus_client import CollectorRegistry, ProcessCollector

        self._now = now
        self._registry: Any = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return the exposition, format 0.0.4."""
        from prometheus_client import generate_latest

        return bytes(generate_latest(self._registry))

    def collect(self) -> Iterator[Any]:
        """Yield every metric. Part of prometheus-client's interface."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        for metric, value in zip(METRICS, self._now(), strict=True):
            if isinstance(value, LatencyHistogram):
                yield HistogramMetricFamily(
                    metric.name, metric.help, buckets=value.cumulative(), sum_value=value.sum
                )
                continue
            family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            if not metric.label:
                yield family(metric.name, metric.help, value=value)
                continue
            labelled = family(metric.name, metric.help, labels=[metric.label])
            assert isinstance(value, Mapping)
            for label, number in value.items():
                labelled.add_metric([label], number)
            yield labelled
