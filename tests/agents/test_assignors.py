"""Members of a group are assigned the partitions of the log epoch, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.metadata import MetadataResponse_v1

from agents.consumer.epoch_assignor import EpochRoundRobin
from topics.catalogue import EVENTS


def assigned(count: int | None, members: int) -> list[int]:
    cluster = ClusterMetadata()
    partitions = [(0, number, 0, [0], [0]) for number in range(5)]
    topics = [(0, EVENTS.name, False, partitions)]
    cluster.update_metadata(MetadataResponse_v1([(0, "127.0.0.1", 9092, None)], 0, topics))
    assignor = EpochRoundRobin(count)
    found: Mapping[str, Any] = assignor.assign(
        cluster, {str(number): assignor.metadata([EVENTS.name]) for number in range(members)}
    )
    return sorted(n for each in found.values() for _, numbers in each.assignment for n in numbers)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_partitions_beyond_the_epochs_are_left_out(members: int) -> None:
    assert assigned(2, members) == [0, 1]


def test_a_topic_without_an_epoch_is_assigned_whole() -> None:
    assert assigned(None, 2) == [0, 1, 2, 3, 4]
