"""The partitions that a log epoch uses, where topics were given more of them. Pure.

A key's partition follows from the epoch's count, and so does the owner of what was learned. So
workers read the first partitions only, and our producers use no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from topics.catalogue import EVENTS, TOPICS
from topics.kafka.topic_states import TopicState

HOW: Final = "see docs/how-to/partitions.md#partitions-were-added"
_OF_EPOCH: Final = frozenset(topic.name for topic in TOPICS if topic.partitioned)


class UnreadPartitions(NamedTuple):
    """Partitions of a topic beyond the epoch's count, and the records in them."""

    topic: str
    found: int
    used: int
    records: int

    def __str__(self) -> str:
        return (
            f"{self.topic} has {self.found} partitions, and its log epoch was created for "
            f"{self.used}: workers do not read the others (records in them: {self.records:,})"
        )


def used_partitions(states: Mapping[str, TopicState], count: int) -> dict[str, TopicState]:
    """Return the states of topics without the partitions that an epoch of `count` does not use."""
    return {
        name: _first(state, count) if name in _OF_EPOCH else state for name, state in states.items()
    }


def unread_partitions(states: Mapping[str, TopicState], count: int) -> Iterator[UnreadPartitions]:
    """Yield the topics with more partitions than `count`, those with events first."""
    for name in sorted(states.keys() & _OF_EPOCH, key=lambda name: (name != EVENTS.name, name)):
        state = states[name]
        if state.partitions > count:
            beyond = range(count, state.partitions)
            records = sum(max(state.end[n], state.high.get(n, 0)) - state.begin[n] for n in beyond)
            yield UnreadPartitions(name, state.partitions, count, records)


def _first(state: TopicState, count: int) -> TopicState:
    if state.partitions <= count:
        return state
    begin, end, high = (
        {n: offset for n, offset in each.items() if n < count}
        for each in (state.begin, state.end, state.high)
    )
    return replace(state, partitions=count, begin=begin, end=end, high=high)
