"""Findings on topics: copies that a dead broker would take, and partitions that are not read."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from console.inspection.doctor.broker import check_topics
from console.inspection.doctor.findings import ERROR, OK, WARNING, Finding
from topics.catalogue import EVENTS, THRESHOLDS, TOPICS
from topics.epoch import Epoch
from topics.kafka.admin import IN_SYNC, in_sync
from topics.kafka.topic_states import TopicState

EPOCH = Epoch(7, 2)


def states(copies: int = 1, **more: int) -> dict[str, TopicState]:
    """Every topic as the epoch needs it; `events`: the partitions of `headstart.events`."""
    found = {}
    for topic in TOPICS:
        count = EPOCH.partitions if topic.partitioned else 1
        if topic is EVENTS:
            count = more.get("events", count)
        ends = dict.fromkeys(range(count), 3)
        found[topic.name] = TopicState(
            topic.name, count, dict.fromkeys(ends, 0), ends, copies=copies
        )
    return found


def found(states: Mapping[str, TopicState], in_sync: str = "") -> list[Finding]:
    settings = {topic.name: {IN_SYNC: in_sync} if in_sync else {} for topic in TOPICS}
    return list(check_topics(states, settings, EPOCH))


@pytest.mark.parametrize(
    ("copies", "in_sync", "named"),
    [
        (1, "1", ""), (2, "1", ""), (3, "2", ""), (5, "3", ""), (5, "2", ""), (0, "1", ""),
        (2, "2", "none may be away"), (3, "1", "not 2"), (3, "3", "none may be away"),
    ],
)  # fmt: skip
def test_copies_that_acknowledge(copies: int, in_sync: str, named: str) -> None:
    (finding,) = found(states(copies), in_sync)
    assert finding.level == (WARNING if named else OK)
    assert named in finding.what
    assert (finding.remedy != "") is bool(named)


def test_fewer_copies_than_the_others() -> None:
    some = states(3)
    some[THRESHOLDS.name] = TopicState(THRESHOLDS.name, 2, {}, {}, copies=1)
    (finding,) = found(some, "2")
    assert finding.what.endswith(f"which have 3: {THRESHOLDS.name}")


def test_what_topics_are_created_with() -> None:
    assert [in_sync(copies) for copies in (1, 2, 3, 5)] == [{}, {}, {IN_SYNC: "2"}, {IN_SYNC: "3"}]


def test_partitions_that_are_not_read_are_an_error_once_they_hold_records() -> None:
    (finding,) = found(states(events=5))
    assert finding.level == ERROR
    assert f"{EVENTS.name} has 5 partitions" in finding.what
    assert "created for 2" in finding.what
    assert "records in them: 9" in finding.what
    empty, threes = states(events=5), dict.fromkeys(range(5), 3)
    empty[EVENTS.name] = TopicState(EVENTS.name, 5, threes, threes)
    (finding,) = found(empty)
    assert finding.level == WARNING


def test_fewer_partitions_than_the_epochs_are_an_error() -> None:
    (finding,) = found(states(events=1))
    assert finding.level == ERROR
    assert "must have" in finding.what
