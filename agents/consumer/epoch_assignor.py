"""The assignors of consumer groups, limited to the partitions of the log epoch.

A topic may be given more partitions while workers run. Faust would assign the new ones, and no
longer together with those of the changelog, which has fewer. Faust uses its own assignor for apps
with tables only, and aiokafka's for all others, so there is one of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from faust.assignor.partition_assignor import PartitionAssignor


class EpochAssignor(PartitionAssignor):  # type: ignore[misc]
    """Assigns the partitions that the epoch of its app uses (`App.used_partitions`)."""

    def _get_copartitioned_groups(
        self, topics: set[str], cluster: Any, subscriptions: Mapping[str, list[str]]
    ) -> Any:
        used = _UsedPartitions(cluster, self.app.used_partitions)
        return super()._get_copartitioned_groups(topics, used, subscriptions)


class EpochRoundRobin(RoundRobinPartitionAssignor):  # type: ignore[misc]
    """Assigns the partitions numbered below `count` in turns; None: all."""

    def __init__(self, count: int | None) -> None:
        self._count = count

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> Any:
        """Return the assignment of each member."""
        return super().assign(_UsedPartitions(cluster, self._count), members)


class _UsedPartitions:
    """Metadata of a cluster, with at most `count` partitions of each topic; None: with all."""

    def __init__(self, cluster: Any, count: int | None) -> None:
        self._cluster, self._count = cluster, count

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        found: set[int] | None = self._cluster.partitions_for_topic(topic)
        if found is None or self._count is None:
            return found
        return {n for n in found if n < self._count}
