"""Which records of a log the recreated one gets, and for which consumer group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from headstart.keys import event_key
from processing.records.batch import RecordBatch
from processing.records.headers import is_for_group
from processing.records.sink_lines import purge_at
from replay.recreation.carried_records import (
    PartitionStates,
    first_needed_events,
    headers_of_event,
)
from topics.catalogue import EPISODES_GROUP, THRESHOLDS_GROUP
from topics.control.messages import Purge, Reset, control_records
from topics.dead_letters.messages import GROUP_HEADER
from topics.models.records import (
    FORMAT,
    MARKER_KEY,
    NewerModel,
    encode_marker,
    encode_model,
)

BOTH = {EPISODES_GROUP, THRESHOLDS_GROUP}


@dataclass
class Record:
    """As aiokafka returns it."""

    offset: int
    value: bytes = b"{}"
    headers: Any = ()
    key: bytes | None = None


def groups_of(record: Record, applied: int) -> set[str]:
    """The groups that handle a record in the new log."""
    headers = headers_of_event(record, applied)
    return set() if headers is None else {each for each in BOTH if is_for_group(headers, each)}


@pytest.mark.parametrize(
    ("of", "learned", "groups"),
    [
        (None, False, BOTH),
        (None, True, {EPISODES_GROUP}),
        (EPISODES_GROUP, False, {EPISODES_GROUP}),
        (EPISODES_GROUP, True, {EPISODES_GROUP}),
        (THRESHOLDS_GROUP, False, {THRESHOLDS_GROUP}),
        (THRESHOLDS_GROUP, True, set()),
    ],
)
def test_an_event_goes_to_the_groups_that_lack_it(
    of: str | None, learned: bool, groups: set[str]
) -> None:
    headers = () if of is None else ((GROUP_HEADER, of.encode()),)
    assert groups_of(Record(7, headers=headers), 7 if learned else 6) == groups


def test_of_applied_control_records_only_purges_are_left_and_only_the_sink_sees_them() -> None:
    (reset,) = control_records(Reset(id="r", at=1, pattern="*", tenant="t"), [0], None)
    assert headers_of_event(Record(3, reset.value, reset.headers), 3) is None
    assert headers_of_event(Record(4, reset.value, reset.headers), 3) == tuple(reset.headers)
    assert headers_of_event(Record(3, b"{", reset.headers), 3) is None

    erased = Purge(id="p", at=1_760_000_000_000, tenant="t", user_id="u")
    (purge,) = control_records(erased, [0], None)
    headers = headers_of_event(Record(3, purge.value, purge.headers), 3)
    assert headers is not None
    assert not any(is_for_group(headers, each) for each in BOTH)
    batch = RecordBatch("", 0, 3, 4, [3], [1_760_000_000_000], [purge.key], [purge.value])
    assert purge_at(batch, 0, headers, None) is not None


def test_the_log_is_needed_from_where_either_group_is() -> None:
    applied, stored = {0: 9, 1: -1, 2: 9, 3: 9}, {0: 4, 1: 3, 2: 15}
    begin = {0: 2, 1: 0, 2: 0, 3: 5}
    assert first_needed_events(applied, stored, begin) == {0: 4, 1: 0, 2: 10, 3: 5}


A, B, C = (event_key("t", name) for name in "abc")


def state(key: bytes, epoch: int, offset: int) -> Record:
    return Record(0, encode_model(epoch, offset, (0, -1), b"s"), key=key)


def test_decisions_are_carried_over_that_the_newest_state_of_their_model_lacks() -> None:
    states = PartitionStates(epoch=5, end=40)
    for record in (
        state(A, 5, 20),
        state(A, 5, 12),  # of a stale owner
        state(B, 4, 90),  # of an earlier log
        state(C, 5, 40),  # later than the log: not learned from it
        Record(0, encode_marker(5, 11, {A: 20}), key=MARKER_KEY),
        Record(0, encode_marker(4, 99, {}), key=MARKER_KEY),
        Record(0, encode_marker(5, 41, {}), key=MARKER_KEY),
        Record(0, b"\xc1", key=A),
        Record(0, b"x", key=b"no key of a model"),
    ):
        states.add(record)
    assert states.versions == {A: (5, 20), B: (4, 90)}
    assert states.needed() == 11
    lacking = {
        (key, at) for key in (A, B, C) for at in (11, 20, 21) if states.lacks(Record(at, key=key))
    }
    assert lacking == {(A, 21), *((key, at) for key in (B, C) for at in (11, 20, 21))}


def test_a_state_of_a_newer_format_ends_it() -> None:
    value = msgspec.msgpack.encode([FORMAT + 1, 5, 1, [0, -1], b""])
    with pytest.raises(NewerModel):
        PartitionStates(5, 9).add(Record(0, value, key=A))
