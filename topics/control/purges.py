"""What purges cover: the rule that sinks, replays and exports share.

A purge covers an event of its subject that comes before it in the partition, or that is not newer
than the purge (`timestamp <= at`): an executor's spool still had it. A reader therefore needs every
purge of a partition before the first event; `replay.log.purges` finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

import msgspec

from headstart.keys import context_part
from topics.control.messages import Purge

SUBJECTS = ("user_id", "session_id", "workflow_id")
"""The fields that a purge may name."""


class EventSubject(msgspec.Struct, gc=False):
    """The fields of an event that decide whether a purge covers it."""

    tenant: str
    workflow_id: str
    timestamp: int
    user_id: str | None = None
    session_id: str | None = None


_decode = msgspec.json.Decoder(EventSubject).decode


def subject_of(event: bytes) -> EventSubject | None:
    """Return the subject of an event's JSON; None if it is not an event."""
    try:
        return _decode(event)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def subject_name(purge: Purge) -> tuple[str, str]:
    """Return the field that a purge names, and its value; ("tenant", its name) for a whole one."""
    for field in SUBJECTS:
        if (value := getattr(purge, field)) is not None:
            return field, cast("str", value)
    return "tenant", purge.tenant


def context_matcher(purge: Purge) -> Callable[[str, str], bool]:
    """Return whether (tenant, context path) is of the subject of a purge.

    Only where a level of the path is the field that the purge names: of other contexts, several
    users taught each.
    """
    field, value = subject_name(purge)
    part = None if purge.whole_tenant else context_part(field, value)

    def holds(tenant: str, path: str) -> bool:
        return tenant == purge.tenant and (part is None or part in path.split("/"))

    return holds


class PlacedPurge(NamedTuple):
    """A purge, and its offset in a partition; -1 where that is not known."""

    purge: Purge
    offset: int


class PartitionPurges:
    """The purges of one partition, by what they name."""

    def __init__(self, purges: Iterable[PlacedPurge] = ()) -> None:
        self._named: dict[tuple[str, str, str], list[PlacedPurge]] = {}
        for each in purges:
            self.add(each)

    def add(self, placed: PlacedPurge) -> None:
        """Add a purge."""
        purge = placed.purge
        field, value = subject_name(purge)
        for key in ((field, value), *(("run", run) for run in purge.runs)):
            self._named.setdefault((purge.tenant, *key), []).append(placed)

    def __bool__(self) -> bool:
        return bool(self._named)

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants of which something is purged."""
        return frozenset(tenant for tenant, _, _ in self._named)

    def covers(self, event: EventSubject, offset: int) -> bool:
        """Return whether an event at an offset is covered."""
        tenant, named = event.tenant, self._named
        by_user = ("user_id", event.user_id) if event.user_id else ("run", event.workflow_id)
        keys = (
            by_user,
            ("session_id", event.session_id or ""),
            ("workflow_id", event.workflow_id),
            ("tenant", tenant),
        )
        return any(
            offset < each.offset or event.timestamp <= each.purge.at
            for key in keys
            for each in named.get((tenant, *key), ())
        )

    def kept(self, events: Sequence[bytes], offset: int) -> list[bytes]:
        """Return the events, as JSON, that are not covered."""
        return [
            raw
            for raw in events
            if (found := subject_of(raw)) is None or not self.covers(found, offset)
        ]
