"""Dead letters made records again: whose, where to, and which cannot be."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.keys import event_key
from processing.dead_letter_replay import NotReplayable, replay_of
from processing.records.headers import is_for_group, origin_override
from processing.records.partitioner import partition_for
from tests.processing.building import NOW, event
from topics.catalogue import (
    DECISIONS,
    EPISODES_GROUP,
    EVENTS,
    HISTORY_GROUP,
    THRESHOLDS,
    THRESHOLDS_GROUP,
)
from topics.dead_letters.messages import DeadLetterRecord, DeadLetterSource, OutgoingRecord

GOOD = orjson.dumps(event())
BAD = orjson.dumps(event(confidence=7))


def letter(value: bytes = GOOD, **fields: Any) -> DeadLetterRecord:
    values = {
        "partition": 0, "offset": 12, "refused_at": NOW, "key": b"k", "value": value, "reason":
        "why", "group": EPISODES_GROUP, "source": DeadLetterSource(EVENTS.name, 3, 41, NOW, None),
        "truncated_from": None, "truncated_sha256": None,
    }  # fmt: skip
    return DeadLetterRecord(**{**values, **fields})


def replay(
    of: DeadLetterRecord, corrected: bytes | None = None, partitions: int = 8
) -> OutgoingRecord:
    return replay_of(of, corrected, epoch=5, partitions=partitions, now_ms=NOW)


@given(
    st.text("abc", min_size=1), st.text("abc", min_size=1), st.integers(1, 64), st.integers(0, 9)
)
def test_it_goes_only_to_the_owner_of_its_key(
    tenant: str, workflow: str, partitions: int, offset: int
) -> None:
    value = orjson.dumps(event(tenant=tenant, workflow_type=workflow))
    sent = replay(letter(value, offset=offset), partitions=partitions)
    assert sent.value == value, "the original bytes"
    assert sent.key == event_key(tenant, workflow)
    assert sent.partition == partition_for(tenant, workflow, partitions)
    assert is_for_group(sent.headers, EPISODES_GROUP)
    assert not is_for_group(sent.headers, THRESHOLDS_GROUP)
    assert origin_override(sent.headers) == (f"dead-letters/5/0/{offset}", 0)


def test_a_frame_of_one_key_is_one_record() -> None:
    frame = orjson.dumps([event(), event()])
    assert replay(letter(frame)).value == frame


def test_corrected_bytes_take_the_place_of_the_original() -> None:
    assert replay(letter(BAD), GOOD).value == GOOD
    assert replay(letter(b"cut", truncated_from=900_001), GOOD).value == GOOD


def test_the_same_dead_letter_always_has_the_same_lane() -> None:
    assert replay(letter(BAD), GOOD).headers == replay(letter(GOOD)).headers
    assert replay(letter(offset=13)).headers != replay(letter()).headers


@pytest.mark.parametrize(
    ("dead", "corrected", "why"),
    [
        (letter(BAD), None, "would be refused again: confidence"),
        (letter(GOOD), BAD, "would be refused again: confidence"),
        (letter(b""), None, "would be refused again: the record has no value"),
        (letter(b"[]"), None, "holds no event"),
        (letter(b"cut", truncated_from=900_001), None, "only 3 of its 900001 bytes"),
        (letter(source=None), GOOD, "headers do not name"),
        (letter(group=None), GOOD, "headers do not name"),
        (letter(group="somebody"), None, "'somebody', which reads no events"),
        (letter(group="\x1b[2J"), GOOD, r"'\\x1b\[2J', which reads no events"),
        (letter(group=HISTORY_GROUP), GOOD, "which reads no events"),
        (
            letter(source=DeadLetterSource(THRESHOLDS.name, 0, 1, NOW, None)),
            None,
            "the newest of its key",
        ),
        (
            letter(source=DeadLetterSource(DECISIONS.name, 0, 1, NOW, None)),
            None,
            "would be a repeat",
        ),
        (letter(orjson.dumps([event(), event(tenant="b")])), None, "events of several keys"),
    ],
)
def test_letters_that_cannot_be_replayed_have_a_reason(
    dead: DeadLetterRecord, corrected: bytes | None, why: str
) -> None:
    with pytest.raises(NotReplayable, match=why):
        replay(dead, corrected)


def test_the_rules_of_outcomes_are_foreseen_for_the_group_that_has_them() -> None:
    start = orjson.dumps(event("speculation_start", confidence=0.7))
    with pytest.raises(NotReplayable, match="would be refused again: task_id: is missing"):
        replay(letter(start, group=THRESHOLDS_GROUP))
    assert replay(letter(start, group=EPISODES_GROUP)).value == start
    learned = orjson.dumps(event("speculation_start", confidence=0.7, task_id="t1"))
    assert replay(letter(learned, group=THRESHOLDS_GROUP)).value == learned


def test_an_event_from_the_future_is_replayed_when_its_time_has_come() -> None:
    tomorrow = letter(orjson.dumps(event(timestamp=NOW + 86_400_000)))
    with pytest.raises(NotReplayable, match="timestamp"):
        replay(tomorrow)
    replay_of(tomorrow, None, epoch=5, partitions=8, now_ms=NOW + 86_400_000)
