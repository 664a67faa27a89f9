"""The reader's counts: one list of names, and the same numbers in prometheus-client."""

from __future__ import annotations

import gc

import pytest

from headstart.thresholds.metrics import BUCKETS_S, METRICS, LatencyHistogram, ReaderCounts
from headstart.thresholds.reader import Thresholds


def test_every_metric_is_counted_and_explained() -> None:
    counts = ReaderCounts()
    assert set(vars(counts)) == {metric.name for metric in METRICS}
    assert set(counts.stats()) == {m.name for m in METRICS if m.kind != "histogram"}
    assert all(metric.help for metric in METRICS)


def test_a_histogram_counts_each_once() -> None:
    histogram, other = LatencyHistogram(), LatencyHistogram()
    for seconds in (0.0, 0.0001, 0.00011, 5.0):
        histogram.observe(seconds)
    other.add(histogram)
    assert other.counts == histogram.counts == [2, 1, *[0] * (len(BUCKETS_S) - 2), 1]
    assert other.sum == pytest.approx(5.00021)


def test_prometheus_has_the_sums_of_all_readers_there_were() -> None:
    prometheus = pytest.importorskip("prometheus_client")

    def value(name: str, **labels: str) -> float:
        found = prometheus.REGISTRY.get_sample_value(f"headstart_reader_{name}", labels)
        return 0.0 if found is None else float(found)

    before = value("failed_total"), value("stale_total")
    with Thresholds("redis://127.0.0.1:1") as one, Thresholds("redis://127.0.0.1:1") as other:
        for reader in (one, other):
            reader.get(workflow_type="refund")  # nothing answers
            assert reader.stats()["failed"] == 1
        assert (value("failed_total"), value("stale_total")) == (before[0] + 2, before[1] + 2)
    del one, other, reader
    gc.collect()
    assert value("failed_total") == before[0] + 2, "a counter never falls"
    text = prometheus.generate_latest().decode()
    assert "# TYPE headstart_reader_miss_seconds histogram" in text
    assert 'headstart_reader_miss_seconds_bucket{le="+Inf"}' in text
    assert all(f"headstart_reader_{metric.name}" in text for metric in METRICS)
