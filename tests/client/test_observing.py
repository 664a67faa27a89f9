"""What emitters report: stats, Prometheus, the trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headstart import BufferFull, Emitter, NotDelivered, Scrubbing
from headstart.emitting.metrics import Timing
from headstart.spool.layout import SpoolTarget, read_progress
from headstart.spool.settings import SpoolSettings
from headstart.spool.writer import SpoolWriter
from tests.client.on_disk import fill, open_backlog, open_spool, read_all

FIELDS = {"event_type": "task_complete", "workflow_type": "w", "workflow_id": "w"}
NOWHERE = "127.0.0.1:1"


def give_up(emitter: Emitter) -> None:
    with pytest.raises(NotDelivered):
        emitter.close(0.0)


def test_the_histogram_counts_each_duration_once() -> None:
    timing = Timing()
    for duration in (0, 5_000, 5_001, 3_000_000_000):
        timing.note(duration)
    assert (timing.counts[0], timing.counts[1], timing.counts[-1]) == (2, 1, 1)
    assert sum(timing.counts) == 4


def test_prometheus_exports_the_counts_of_stats(tmp_path: Path) -> None:
    client = pytest.importorskip("prometheus_client")
    value = client.REGISTRY.get_sample_value
    before = value("headstart_client_emitted_total") or 0
    calls = value("headstart_client_emit_seconds_count") or 0
    emitter = Emitter(NOWHERE, spool=tmp_path, shipper="none")
    emitter.emit(FIELDS)
    emitter.emit(FIELDS)
    assert value("headstart_client_emitted_total") == before + 2
    assert value("headstart_client_waiting") >= 2
    assert value("headstart_client_emit_seconds_count") == calls + 2
    give_up(emitter)
    assert value("headstart_client_emitted_total") == before + 2  # a counter never goes back


def test_an_event_carries_the_span_that_it_was_emitted_in(tmp_path: Path) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    emitter = Emitter(NOWHERE, spool=tmp_path, shipper="none")
    tracer = sdk.TracerProvider().get_tracer("t")
    emitter.emit(FIELDS)
    with tracer.start_as_current_span("call") as span:
        emitter.emit(FIELDS)
        emitter.emit(FIELDS, traceparent="mine")
    there = b"".join(path.read_bytes() for path in tmp_path.glob("*/*.log"))
    trace = span.get_span_context()
    assert there.count(b"traceparent") == 2
    parent = f"00-{trace.trace_id:032x}-{trace.span_id:016x}-{trace.trace_flags:02x}"
    assert f'"traceparent":"{parent}"'.encode() in there
    give_up(emitter)


@pytest.mark.parametrize("where", ["emit", "shipper", "off"])
def test_where_secrets_are_taken_out(tmp_path: Path, where: Any) -> None:
    emitter = Emitter(NOWHERE, spool=tmp_path, shipper="none", scrub=where)
    emitter.emit(FIELDS, data={"password": "hunter2"})
    (segment,) = tmp_path.glob("*/*.log")
    assert (b"hunter2" in segment.read_bytes()) == (where != "emit")
    assert emitter.stats()["scrubbed"] == (where == "emit")
    give_up(emitter)


def test_the_shipper_scrubs_events_and_counts_settled_ones(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    fill(spool, 1)
    spool.append(b"k", b'{"password":"hunter2","token":"x"}')
    spool.append(b"k", b'{"password": nonsense}')
    backlog = open_backlog(spool)
    items = read_all(backlog)
    assert [item.event for item in items] == [
        b'{"n":0}', b'{"password":"[scrubbed]","token":"[scrubbed]"}'
    ]  # fmt: skip
    assert spool.progress().scrubbed == 0
    for item in items:
        item.chunk.delivered()
    progress = spool.progress()
    assert (progress.settled, progress.lost, progress.scrubbed) == (3, 1, 2)
    assert list((tmp_path / "quarantine").iterdir())
    backlog.close()
    spool.close()


def test_the_shipper_does_what_the_spool_s_emitter_asked_for(tmp_path: Path) -> None:
    target = SpoolTarget(NOWHERE, "t", 0.0, scrub=Scrubbing(keys=("iban",), without=("card",)))
    spool = SpoolWriter("s", SpoolSettings(tmp_path), target)
    spool.append(b"k", b'{"iban":"DE02","q":"4111111111111111"}')
    backlog = open_backlog(spool)
    assert backlog.target == target
    assert read_all(backlog)[0].event == b'{"iban":"[scrubbed]","q":"4111111111111111"}'
    backlog.close()
    spool.close()


def test_in_memory_the_oldest_that_is_not_being_sent_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    emitter = Emitter(NOWHERE, durable=False, buffer=10, on_full="drop_oldest")
    for n in range(200):
        emitter.emit(FIELDS, n=n)
    stats = emitter.stats()
    assert stats["emitted"] == 200
    assert stats["waiting"] == 10
    assert stats["dropped"] == stats["lost"] == 190
    assert caplog.text.count("were dropped") == 1
    give_up(emitter)


def test_in_memory_the_limit_is_an_error_by_default() -> None:
    emitter = Emitter(NOWHERE, durable=False, buffer=2)
    emitter.emit(FIELDS)
    emitter.emit(FIELDS)
    with pytest.raises(BufferFull):
        emitter.emit(FIELDS)
    give_up(emitter)


def test_a_progress_file_holds_what_was_scrubbed(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    with (spool.folder / "acked").open("rb") as file:
        progress = read_progress(file.fileno())
    assert progress is not None
    assert progress.scrubbed == 0
    spool.close()
