"""The same events by every way: broker, export, archive, file; what is wrong with them is named."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.support.measuring import produce
from headstart.events.schema import new_id
from headstart.keys import event_key
from learners.registry import policy
from processing.config import LearningConfig
from processing.records.partitioner import partition_for
from replay.engine.join import Filter
from replay.execution.resume_file import AnotherBacktest
from replay.execution.runner import Backtest, named, run_backtest
from replay.predictions.notes import Notes
from replay.rebuild.relearn import relearn
from replay.results.summary import report
from replay.sources import broker
from replay.sources.archive import ArchiveSource
from replay.sources.base import NothingThere, PredictionSource, ReadOptions, TimeRange
from replay.sources.broker import BrokerSource
from replay.sources.export_file import FORMAT, ExportHeader, ExportSource, Writer
from replay.sources.files import EventFile, UnknownFile, open_file
from sinks.postgres.episodes import EpisodeSink, encode_event
from topics.epoch import Epoch, read_epoch
from topics.kafka.topic_states import TopicState

pytestmark = pytest.mark.integration

PARTITIONS = 4
BEGIN = 1_750_000_000_000
KINDS = ("refund", "order", "claim")
POLICIES = named(["hops", "td", "fixed"])


def events(tenant: str) -> list[dict[str, Any]]:
    """121 predictions: two of three asked about first, every fourth wrong, one never ended."""
    made: list[dict[str, Any]] = []
    late: list[dict[str, Any]] = []
    for n in range(122):
        event = {
            "id": new_id(), "tenant": tenant, "workflow_type": KINDS[n % 3],
            "workflow_id": f"w{n // 5}", "task_id": str(n), "timestamp": BEGIN + 1000 * n,
            "user_id": f"u{n % 2}",
        }  # fmt: skip
        result = {"gain_ms": 400.0, "cost_ms": 600.0}
        guess = {"tool_id": "search" if n % 4 else "book", "speculated": n % 2 == 0}
        data = {"context": {"domain": "retail"}}
        if n % 3:
            opened = {"event_type": "speculation_start", "confidence": 0.5 + n % 50 / 100}
            made.append({**event, **opened, "data": {**data, "prediction": guess}})
            ended = {"event_type": "task_complete", "tool_id": "search", "id": new_id()}
            if n < 121:
                late.append({**event, **ended, "data": {**data, "result": result}})
        else:
            judged = {**guess, "was_correct": n % 4 > 0}
            done = {"event_type": "task_complete", "confidence": 0.75}
            made.append({**event, **done, "data": {**data, "prediction": judged, "result": result}})
        if len(late) > 5:
            made.append(late.pop(0))
    made += late
    positions = {}
    for each in made:
        kind = each["workflow_type"]
        positions[kind] = positions.get(kind, -1) + 1
        each["origin"] = [f"spool-{tenant}"[:64], positions[kind]]
    return made


def records(made: Sequence[dict[str, Any]]) -> list[tuple[int, bytes, bytes]]:
    found = []
    for each in made:
        tenant, kind = each["tenant"], each["workflow_type"]
        found.append(
            (partition_for(tenant, kind, PARTITIONS), event_key(tenant, kind), orjson.dumps(each))
        )
    return found


@pytest.fixture
def on_broker(
    kafka: str, log_epoch: Epoch, tenant: str
) -> tuple[BrokerSource, list[dict[str, Any]]]:
    """The events on the broker, some of them twice, and a record that is none."""
    assert log_epoch.partitions == PARTITIONS
    made = events(tenant)
    sent = records(made)
    again = [sent[3], sent[40], sent[41]]
    poison = (sent[0][0], b"k", b'{"event_type": "task_complete"')
    asyncio.run(produce(kafka, [*sent[:60], poison, *again[:1], *sent[60:], *again[1:]]))
    return BrokerSource(kafka, ReadOptions(chosen=Filter(tenant))), made


def run(history: PredictionSource, **more: Any) -> dict[str, Any]:
    units = run_backtest(Backtest(history, POLICIES), lambda _: None, processes=1, **more)
    return report("x", POLICIES, units)


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Compare what was earned; how much was read besides may differ."""
    assert one["outcomes"] == other["outcomes"]
    assert one["policies"].keys() == other["policies"].keys()
    for name, figures in one["policies"].items():
        theirs = other["policies"][name]
        for what in ("hits", "misses", "oscillations", "interval"):
            assert figures[what] == theirs[what], (name, what)
        assert figures["utility"] == pytest.approx(theirs["utility"])


def test_the_broker(on_broker: tuple[BrokerSource, list[dict[str, Any]]]) -> None:
    history, _ = on_broker
    found = run(history)
    assert found["outcomes"] == 121
    assert found["against"] == "live"
    judged = [n for n in range(121) if n % 2 == 0]
    assert found["policies"]["live"]["hits"] == sum(n % 4 > 0 for n in judged)
    assert found["read"]["duplicates"] >= 3
    assert any("not JSON" in reason for reason in found["read"]["named"])


def test_an_export_agrees_with_the_broker(
    on_broker: tuple[BrokerSource, list[dict[str, Any]]], tmp_path: Path
) -> None:
    history, _ = on_broker
    file = tmp_path / "log.jsonl.zst"
    with Writer(file, ExportHeader(FORMAT, *history.log())) as writer:
        for unit in history.units():
            for batch, _ in history.batches(unit, Notes()):
                writer.add(batch)
    back = open_file(file, history.reading)
    assert isinstance(back, ExportSource)
    same(run(history), run(back))
    for chosen, expected in (("retail", 9), ("ret", 0)):  # three types, each with two users
        only = replace(back, reading=replace(back.reading, chosen=Filter(None, None, chosen)))
        found, _ = relearn(only, LearningConfig(policy("hops")), lambda _: None, processes=1)
        mine = [each for each in found if each.tenant == history.reading.chosen.tenant]
        assert len(mine) == expected
    live, counted = relearn(history, LearningConfig(policy("hops")), lambda _: None, processes=1)
    again, _ = relearn(back, LearningConfig(policy("hops")), lambda _: None, processes=1)
    assert live == again
    assert counted.duplicates >= 3


def test_several_processes_find_the_same(
    on_broker: tuple[BrokerSource, list[dict[str, Any]]], tmp_path: Path
) -> None:
    history, _ = on_broker
    kept = tmp_path / "kept"
    units = run_backtest(Backtest(history, POLICIES), lambda _: None, processes=2, resume=kept)
    found = report("x", POLICIES, units)
    same(found, run(history))
    same(found, run(history, resume=kept))  # nothing is left to do
    with pytest.raises(AnotherBacktest, match="another backtest"):
        run_backtest(Backtest(history, named(["td"])), lambda _: None, resume=kept)


def test_the_archive_and_a_file_of_events(migrated: str, tenant: str, tmp_path: Path) -> None:
    made = events(tenant)
    made.sort(key=lambda each: each["timestamp"])  # the archive knows no other order

    async def store() -> None:
        async def accept(refused: object) -> None:
            raise AssertionError(refused)

        async with await EpisodeSink.open(migrated) as sink:
            rows = [encode_event(orjson.dumps(each)) for each in made]
            await sink.store(rows, {}, topic="headstart.events", epoch=1, on_refused=accept)

    asyncio.run(store())
    archive = ArchiveSource(migrated, ReadOptions(chosen=Filter(tenant)))
    found = run(archive)
    assert found["outcomes"] == 121
    assert found["read"]["unmatched"] == 0
    later = ReadOptions(chosen=Filter(tenant), range=TimeRange(since=BEGIN + 60_000))
    assert 50 < run(ArchiveSource(migrated, later))["outcomes"] < 70
    with pytest.raises(NothingThere, match="no events in the range"):
        ArchiveSource(migrated, ReadOptions(range=TimeRange(until=1))).units()
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in events(tenant)))
    assert isinstance(open_file(file, ReadOptions()), EventFile)
    assert run(open_file(file, ReadOptions()))["outcomes"] == 121


def test_a_range_of_offsets(on_broker: tuple[BrokerSource, list[dict[str, Any]]]) -> None:
    history, made = on_broker
    partition = partition_for(made[0]["tenant"], "refund", PARTITIONS)
    end = dict.fromkeys(range(PARTITIONS), 0)
    with pytest.raises(NothingThere, match="no records in the range"):
        BrokerSource(history.kafka, ReadOptions(range=TimeRange(end=end))).units()
    only = ReadOptions(
        range=TimeRange(end={**end, partition: 10**9}), chosen=history.reading.chosen
    )
    assert BrokerSource(history.kafka, only).units() == [partition]


def test_a_range_of_time(on_broker: tuple[BrokerSource, list[dict[str, Any]]]) -> None:
    """To the record, whatever the broker makes of a time between two of them, or after the last."""
    history, _ = on_broker

    def read(span: TimeRange) -> dict[int, list[tuple[int, int]]]:
        found = BrokerSource(history.kafka, ReadOptions(range=span))
        return {
            unit: [place for batch, _ in found.batches(unit, Notes())
                   for place in zip(batch.offsets, batch.timestamps, strict=True)]
            for unit in found.units()
        }  # fmt: skip

    every = read(TimeRange())
    times = sorted(at for records in every.values() for _, at in records)
    for at in (times[0], times[len(times) // 2], times[len(times) // 2] + 1, times[-1]):
        first = {unit: next((o for o, t in log if t >= at), 10**9) for unit, log in every.items()}
        later = {unit: [each for each in log if each[0] >= first[unit]]
                 for unit, log in every.items()}  # fmt: skip
        assert read(TimeRange(since=at)) == {unit: log for unit, log in later.items() if log}
    assert read(TimeRange(until=times[-1] + 1)) == every
    with pytest.raises(NothingThere, match="no records in the range"):
        read(TimeRange(since=times[-1] + 1))
    with pytest.raises(NothingThere, match="no records in the range"):
        read(TimeRange(until=times[0]))


def test_records_deleted_by_retention_are_reported(
    on_broker: tuple[BrokerSource, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded broker keeps everything, so its beginning is only declared to be deleted."""
    history, made = on_broker
    partition = partition_for(made[0]["tenant"], "refund", PARTITIONS)
    real = broker.topic_state

    async def cut(kafka: str, topic: str) -> TopicState:
        state = await real(kafka, topic)
        return TopicState(topic, state.partitions, {**state.begin, partition: 3}, state.end)

    monkeypatch.setattr(broker, "topic_state", cut)
    asked = ReadOptions(range=TimeRange(begin={partition: 1}), chosen=history.reading.chosen)
    notes = Notes()
    batches = list(BrokerSource(history.kafka, asked).batches(partition, notes))
    assert batches[0][0].offsets[0] == 3
    assert notes.warnings[0].startswith(f"partition {partition} begins at offset 3: retention has")


def test_nothing_is_committed_and_no_group_is_joined(
    on_broker: tuple[BrokerSource, list[dict[str, Any]]],
) -> None:
    history, _ = on_broker
    before = asyncio.run(broker.log_ranges(history.kafka, history.reading))
    run(history)
    assert asyncio.run(broker.log_ranges(history.kafka, history.reading)) == before
    assert asyncio.run(read_epoch(history.kafka)).partitions == PARTITIONS


def test_a_file_of_no_form_that_we_know(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"a": 1}\n')
    with pytest.raises(UnknownFile, match="none of"):
        open_file(file, ReadOptions())
    file.write_text("")
    with pytest.raises(NothingThere, match="empty"):
        open_file(file, ReadOptions())
