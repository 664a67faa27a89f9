"""A fetch that compiled code unpacked is applied as the same records in lists are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.consumer.columnar_unpack import unpack
from learners.registry import POLICIES
from processing.config import LearningConfig
from processing.records.batch import RecordBatch
from processing.records.columnar import ColumnarRecordBatch
from processing.task import PartitionTask
from tests.agents.record_batches import Batch, encode
from tests.processing.mixtures import batches, commits, rules_of, stretched, stretches_of
from topics.kafka.fetch_patch import RetainedRecords


def as_sent(batch: RecordBatch, draw: random.Random) -> bytes:
    """Return the records of a batch as record batches of Kafka, compressed or not."""
    records = [*zip(batch.offsets, batch.timestamps, batch.keys, batch.values, strict=True)]
    sent = b""
    while records:
        size, codec = draw.choice([1, 5, 60]), draw.choice([0, 0, 1, 2, 3, 4])
        some, records = records[:size], records[size:]
        base = some[0][0]
        held = tuple((at - base, *rest, batch.headers.get(at, ())) for at, *rest in some)
        sent += encode(Batch(held, held[-1][0], gap=0, codec=codec), base)
    return sent


def packed(batch: RecordBatch, draw: random.Random, compiled: Any) -> ColumnarRecordBatch:
    """Return a batch as it comes from a broker."""
    records = RetainedRecords(as_sent(batch, draw))
    source = SimpleNamespace(_records=records, _check_crcs=True, next_fetch_offset=batch.begin)
    place = SimpleNamespace(topic=batch.topic, partition=batch.partition)
    found, left = unpack(source, place, 1 << 30, compiled)
    assert found is not None
    assert not left
    found.end = batch.end
    return found


def short(log: Sequence[RecordBatch], rules: Any, compiled: Any, *, ahead: bool) -> Any:
    with stretches_of(compiled):
        return commits(PartitionTask, log, rules, ahead=ahead)[0]


@pytest.mark.parametrize("policy", ["ema", "hops"])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**9), ahead=st.booleans(), dropped=st.integers(0, 9))
def test_it_gives_the_same_commits(
    compiled: Any, policy: str, seed: int, ahead: bool, dropped: int
) -> None:
    draw, rules, log = random.Random(seed), rules_of(seed, policy), batches(seed, 150)
    fetched = [packed(batch, draw, compiled) for batch in log]
    for place in range(0, len(log), 3):
        for each in (log[place], fetched[place]):
            each.drop_before(each.begin + dropped)
    kept = [place for place, batch in enumerate(log) if len(batch)]
    expected = short([log[place] for place in kept], rules, None, ahead=False)
    assert short([fetched[place] for place in kept], rules, compiled, ahead=ahead) == expected


def test_it_is_applied_by_stretches(compiled: Any) -> None:
    """Or else the law tests nothing."""
    logs = [
        [packed(batch, random.Random(3), compiled) for batch in batches(seed, 150)]
        for seed in range(20)
    ]
    assert stretched(compiled, logs, LearningConfig(POLICIES["ema"], ("user_id",)))[0] > 0.2


def test_it_holds_what_the_records_hold(compiled: Any) -> None:
    for seed in range(20):
        for batch in batches(seed, 60):
            found = packed(batch, random.Random(seed), compiled)
            framing = 20 * len(batch)
            assert batch.size <= found.size <= batch.size + framing
            sizes = [found.value_bytes_at(place) for place in range(len(found))]
            assert sizes == [batch.value_bytes_at(place) for place in range(len(batch))]
            assert [tuple(each) for each in found.headers.values()] == [
                tuple(each) for each in batch.headers.values()
            ]
            assert (found.offsets, found.timestamps) == (batch.offsets, batch.timestamps)
            assert (found.keys, found.values) == (batch.keys, batch.values)
