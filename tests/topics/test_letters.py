"""Dead letters read back from records, ours and strangers', and the filters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.dead_letters.messages import (
    GROUP_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    REASON_HEADER,
    TOPIC_HEADER,
    DeadLetterFilter,
    DeadLetterRecord,
    DeadLetterSource,
    parse_dead_letter,
)


def record(headers: list[tuple[str, bytes | None]], **fields: Any) -> Any:
    given = {"partition": 0, "offset": 7, "timestamp": 1_000, "key": None, "value": b"x", **fields}
    return SimpleNamespace(headers=headers, **given)


def letter(**fields: Any) -> DeadLetterRecord:
    source = DeadLetterSource("headstart.events", 3, 41, 900, None)
    values = {
        "partition": 0, "offset": 7, "refused_at": 1_000, "key": None, "value": b"x",
        "reason": "confidence: must be at most 1", "group": "headstart-episodes",
        "source": source, "truncated_from": None, "truncated_sha256": None,
    }  # fmt: skip
    return DeadLetterRecord(**{**values, **fields})


OURS: list[tuple[str, bytes | None]] = [
    (TOPIC_HEADER, b"headstart.events"),
    (PARTITION_HEADER, b"3"),
    (OFFSET_HEADER, b"41"),
    (REASON_HEADER, b"confidence: must be at most 1"),
    (GROUP_HEADER, b"headstart-episodes"),
    ("headstart.timestamp", b"900"),
]


def test_parsing_a_dead_letter() -> None:
    assert parse_dead_letter(record(OURS)) == letter()
    assert letter().at == "0:7"
    place = parse_dead_letter(record([*OURS, ("headstart.frame.place", b"2")])).source
    assert place is not None
    assert place.place == 2


@pytest.mark.parametrize("name", [TOPIC_HEADER, PARTITION_HEADER, OFFSET_HEADER])
def test_without_its_whole_origin_it_has_none(name: str) -> None:
    rest = [(each, value) for each, value in OURS if each != name]
    assert parse_dead_letter(record(rest)).source is None


@pytest.mark.parametrize("number", [b"9" * 20, b"-" + b"9" * 20, b"9" * 5_000, b"1e3", b""])
def test_an_impossible_offset_is_ignored(number: bytes) -> None:
    headers = [(name, number if name == OFFSET_HEADER else value) for name, value in OURS]
    assert parse_dead_letter(record(headers)).source is None
    place = parse_dead_letter(record([*OURS, ("headstart.frame.place", number)])).source
    assert place is not None
    assert place.place is None


@given(
    st.lists(st.tuples(st.sampled_from([name for name, _ in OURS]), st.none() | st.binary())),
    st.none() | st.binary(),
)
def test_records_of_other_writers_are_parsed(
    headers: list[tuple[str, bytes | None]], value: bytes | None
) -> None:
    found = parse_dead_letter(record(headers, value=value))
    assert found.value == (value or b"")
    assert DeadLetterFilter().takes(found)
    DeadLetterFilter("a", "b", "c", 1).takes(found)


def test_a_recreated_topic_has_other_dead_letters() -> None:
    assert letter().identity != letter(refused_at=2_000).identity
    assert letter().identity != letter(offset=8).identity


@pytest.mark.parametrize(
    ("wanted", "takes"),
    [
        (DeadLetterFilter(), True),
        (DeadLetterFilter(group="headstart-episodes"), True),
        (DeadLetterFilter(group="episodes"), True),
        (DeadLetterFilter(group="thresholds"), False),
        (DeadLetterFilter(topic="headstart.events"), True),
        (DeadLetterFilter(topic="headstart.thresholds"), False),
        (DeadLetterFilter(reason="CONFIDENCE"), True),
        (DeadLetterFilter(reason="workflow"), False),
        (DeadLetterFilter(since=1_000), True),
        (DeadLetterFilter(since=1_001), False),
        (DeadLetterFilter("episodes", "headstart.events", "most 1", 0), True),
        (DeadLetterFilter("episodes", "headstart.events", "most 2", 0), False),
    ],
)
def test_every_criterion_must_hold(wanted: DeadLetterFilter, takes: bool) -> None:
    assert wanted.takes(letter()) is takes


def test_a_filter_never_matches_a_missing_value() -> None:
    silent = letter(group=None, source=None, reason="")
    assert not DeadLetterFilter(group="episodes").takes(silent)
    assert not DeadLetterFilter(topic="headstart.events").takes(silent)
    assert not DeadLetterFilter(reason="x").takes(silent)
