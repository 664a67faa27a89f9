"""The group that a record is for, and its lane."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.events.schema import new_id
from processing.records.headers import is_for_group, origin_override
from processing.records.sink_lines import SinkBatch, unpack_events
from tests.processing.building import Table, context, counts, event, fetch, judged, make, run, store
from topics.catalogue import EPISODES_GROUP, THRESHOLDS_GROUP

GROUP, ORIGIN = "headstart.group", "headstart.origin"
EPISODES_ONLY = [(GROUP, EPISODES_GROUP.encode())]
THRESHOLDS_ONLY = [(GROUP, THRESHOLDS_GROUP.encode())]


@pytest.mark.parametrize("headers", [None, [], [("a", b"b")], [(GROUP, None)]])
def test_a_record_without_a_group_is_for_every_group(headers: list[tuple[str, bytes]]) -> None:
    assert is_for_group(headers, EPISODES_GROUP)
    assert is_for_group(headers, THRESHOLDS_GROUP)


def test_a_record_is_for_the_group_that_it_names() -> None:
    assert is_for_group(EPISODES_ONLY, EPISODES_GROUP)
    assert not is_for_group(EPISODES_ONLY, THRESHOLDS_GROUP)


def test_the_last_header_of_a_name_counts() -> None:
    both = [*EPISODES_ONLY, *THRESHOLDS_ONLY, ("a", b"")]
    assert is_for_group(both, THRESHOLDS_GROUP)
    assert not is_for_group(both, EPISODES_GROUP)


IDS = st.text(st.characters(codec="utf-8", exclude_characters="\0\x1f"), min_size=1, max_size=64)


@given(IDS, st.integers(0, 10**18 - 1))
def test_the_lane_survives_the_header(spool: str, position: int) -> None:
    assert origin_override([(ORIGIN, f"{spool}:{position}".encode())]) == (spool, position)


@pytest.mark.parametrize(
    "value",
    [None, b"", b"7", b":7", b"a:", b"a:-1", b"a:1.5", b"a: 1", "a:²".encode(), "a:٣".encode(),
     b"a\x1fb:1", b"a\0b:1", b"a" * 65 + b":1", b"a:" + b"9" * 19, b"a:" + b"9" * 5_000, b"\xff"],
)  # fmt: skip
def test_an_invalid_lane_is_ignored(value: bytes | None) -> None:
    assert origin_override([(ORIGIN, value)]) is None


@given(st.lists(st.tuples(st.sampled_from([ORIGIN, GROUP]), st.none() | st.binary())))
def test_no_headers_break_anything(headers: list[tuple[str, bytes | None]]) -> None:
    is_for_group(headers, EPISODES_GROUP)
    origin_override(headers)


def test_the_threshold_agent_passes_over_what_is_for_others() -> None:
    batch = fetch(judged(), judged(), b"broken", judged())
    batch.headers.update({1: EPISODES_ONLY, 2: EPISODES_ONLY, 3: THRESHOLDS_ONLY})
    partition = make()
    assert partition.apply(batch) == 4
    commit = partition.commit()
    table: dict[bytes, bytes] = {}
    store(table, commit)
    assert context(table).outcomes == counts(table).outcomes == 2
    assert (commit.dead_letters, commit.end, partition.applied_offset) == ([], 4, 3)


def test_a_record_for_others_at_the_end_of_a_fetch_is_passed_for_good() -> None:
    table, _commit = run(judged())
    batch = fetch(judged(), offsets=[1], end=5)
    batch.headers[1] = EPISODES_ONLY
    partition = make(table)
    partition.apply(batch)
    commit = partition.commit()
    assert commit.end == 5
    store(table, commit)
    assert make(table).applied_offset == 1


def test_the_sink_passes_over_what_is_for_others() -> None:
    events = [event(id=new_id()) for _ in range(3)]
    batch = fetch(*events, b"broken")
    batch.headers.update({1: THRESHOLDS_ONLY, 2: EPISODES_ONLY, 3: THRESHOLDS_ONLY})
    unpacked = SinkBatch()
    unpacked.add(batch, range(len(batch)), unpack_events, list, EPISODES_GROUP)
    assert [orjson.loads(record)["id"] for record in unpacked.records] == [
        events[0]["id"],
        events[2]["id"],
    ]
    assert [place for _batch, place in unpacked.sources] == [0, 2]
    assert unpacked.dead_letters == []


def test_a_replay_counts_although_its_events_have_old_positions_and_counts_once() -> None:
    table: Table = {}
    seen = [judged(origin=["s", 7]), judged(origin=["s", 8])]
    lane = [(ORIGIN, b"dead-letters/3/0/12:0")]
    batch = fetch(seen, [judged(origin=["s", 3]), judged(origin=["s", 4])])
    batch.headers[1] = lane
    again = fetch([judged(origin=["s", 3]), judged(origin=["s", 4])], offsets=[2])
    again.headers[2] = lane
    for each in (batch, again):
        partition = make(table)
        partition.apply(each)
        store(table, partition.commit())
    assert (counts(table).outcomes, counts(table).duplicates) == (4, 2)
