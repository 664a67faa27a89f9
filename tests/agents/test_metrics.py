"""The list of metrics is what is shown, and is named as the field names metrics."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agents.config import WorkerConfig
from agents.health.metrics import BUCKETS_S, METRICS, Exposition, WorkerCounts, started, values
from agents.health.reporter import HealthReporter
from processing.records.batch import RecordBatch
from processing.records.dlq_limits import Slice, extent
from processing.worker_report import Report
from tests.ports import free_port

REPORT = Report(worker="episodes", pid=1, at=2, ready=True, lag={0: 7}, done={0: 3, 1: 0},
                held_back={0: 12}, away=("redis",))  # fmt: skip


def shown(counts: WorkerCounts) -> dict[str, float]:
    """Samples of ours by name and labels; what the process uses is prometheus-client's."""
    text = Exposition(lambda: values(REPORT, None, {"broker", "redis"}, counts)).text().decode()
    return {
        f"{each.name}{tuple(each.labels.values()) or ''}": each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name.startswith("headstart_")
    }


def batch(count: int, timestamp: int) -> RecordBatch:
    return RecordBatch("t", 0, 0, count, list(range(count)), [timestamp] * count, [None] * count,
                       [b""] * count)  # fmt: skip


def test_everything_listed_is_shown_and_nothing_else() -> None:
    found = {
        re.sub(r"\(.*|_(bucket|sum|count)(?=\(|$)", "", name) for name in shown(WorkerCounts())
    }
    assert found == {metric.name for metric in METRICS}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_are_the_fields_own(metric: object) -> None:
    name, kind, meaning, _label = metric  # type: ignore[misc]
    assert re.fullmatch(r"headstart_[a-z]+(_[a-z]+)*", name)
    assert name.endswith("_total") == (kind == "counter")
    assert name.endswith("_seconds") or kind != "histogram"
    assert meaning
    assert not meaning.endswith(".")


def test_no_name_means_two_things() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    # Executors show theirs in the same place.
    assert not [name for name in names if name.startswith(("headstart_client", "headstart_reader"))]


def test_what_a_batch_is_counted_as() -> None:
    counts = WorkerCounts()
    long_ago = int(time.time() * 1000) - 120_000
    parts = [Slice(batch(9, long_ago), 0, 4), Slice(batch(2, long_ago), 0, 0)]
    counts.count_batch(extent(parts), 40)
    counts.observe_effect(extent(parts), started())
    found = shown(counts)
    assert (found["headstart_batches_total"], found["headstart_records_total"]) == (1, 4)
    assert found["headstart_events_total"] == 40
    assert found["headstart_delay_seconds_bucket('60.0',)"] == 0
    assert found["headstart_delay_seconds_bucket('600.0',)"] == 1
    assert found["headstart_delay_seconds_count"] == 1
    assert list(BUCKETS_S) == sorted(BUCKETS_S)


def test_the_report_is_shown() -> None:
    found = shown(WorkerCounts())
    assert (found["headstart_worker_ready"], found["headstart_worker_stuck"]) == (1, 0)
    assert found["headstart_service_up('broker',)"] == 1
    assert found["headstart_service_up('redis',)"] == 0
    assert found["headstart_lag_records('0',)"] == 7
    assert found["headstart_applied_offset('1',)"] == 0
    assert found["headstart_held_back_records('0',)"] == 12


def test_a_worker_that_starts_answers_already(
    worker_config: WorkerConfig,
) -> None:
    worker_config.data.mkdir()
    address = f"127.0.0.1:{free_port()}"
    health = HealthReporter("episodes", replace(worker_config, health=address), {}, {"postgres"})

    def ask() -> tuple[str, str]:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            return answer.headers["Content-Type"], answer.read().decode()

    async def run() -> tuple[str, str]:
        async with health.running():
            return await asyncio.to_thread(ask)

    kind, text = asyncio.run(run())
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert "\nheadstart_worker_ready 0.0\n" in text
    assert "\nprocess_resident_memory_bytes " in text
