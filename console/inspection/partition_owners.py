"""Finds partitions with waiting records that no group member owns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from console.inspection.lag import GroupLag
from topics.catalogue import worker_of
from topics.kafka.groups import GroupState


class Unowned(NamedTuple):
    """Partitions that no worker reads, and the remedy."""

    what: str
    remedy: str


def without_owner(lags: Iterable[GroupLag], states: Mapping[str, GroupState]) -> Iterator[Unowned]:
    """Yield partitions with waiting records that no member of their group owns.

    `states`: by group; a group without a state is skipped.
    """
    for each in lags:
        state = states.get(each.group)
        if state is None or not each.total:
            continue
        worker = f"`headstart worker {worker_of(each.group)}`"
        if not state.members:
            yield Unowned(
                f"group {each.group} has no member: no worker takes in the {each.total:,} records "
                f"of {each.topic} that wait",
                f"start one: `headstart up` or {worker}",
            )
        elif state.owned is not None:
            owned = state.owned.get(each.topic, frozenset())
            left = {n: lag for n, lag in each.lag.items() if lag and n not in owned}
            if left:
                yield Unowned(
                    f"no member of group {each.group} owns partition "
                    f"{', '.join(map(str, left))} of {each.topic}, where "
                    f"{sum(left.values()):,} records wait",
                    f"start the group's workers again: `headstart up` or {worker}",
                )
