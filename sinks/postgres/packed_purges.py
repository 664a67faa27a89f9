"""What a purge does with packed events: a run of one user goes without being unpacked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from psycopg import AsyncConnection

from sinks.postgres.packing.reading import PackedRun
from sinks.postgres.packing.trace_format import PackedEvent
from sinks.postgres.packing.unpacking import (
    Covers,
    ErasedRuns,
    PackedSelection,
    packed_with,
    unpack_runs,
)
from sinks.postgres.packing.writing import RunKey
from topics.control.messages import Purge
from topics.control.purges import SUBJECTS


class UnpackedSubject(NamedTuple):
    """The packed runs of which nothing stays: their episodes are to be deleted."""

    runs: list[RunKey]
    events: int
    """Packed events in them, as far as they can be read."""


class PackedCounts(NamedTuple):
    """What is packed of a subject, up to the time of its purge."""

    events: int
    unnamed: Counter[str]
    """Events of a user's runs that name no user, by workflow id."""
    named: set[str]
    """Workflow ids of runs with events of the user; whatever their time, as `open`."""
    open: set[str]
    """Workflow ids of runs with events that name no user."""


async def unpack_subject(
    connection: AsyncConnection[Any],
    purge: Purge,
    types: Sequence[str] | None = None,
    since: int = -1,
) -> UnpackedSubject:
    """Store packed events as rows again where a run has some that stay; return the other runs.

    Traces that cannot be read are dropped, because erasure goes first, and are among the runs that
    it returns. Those of a whole tenant go with their episodes. In the caller's transaction.
    `types`: only these workflow types, whatever the events' times. `since`: Unix ms; earlier events
    stay.
    """
    if purge.whole_tenant:
        return UnpackedSubject([], 0)
    erased = ErasedRuns(_covers(purge, types, since))
    await unpack_runs(connection, _selection(purge, types), erased)
    return UnpackedSubject([*erased.damaged, *erased.whole], sum(erased.whole.values()))


async def count_packed(connection: AsyncConnection[Any], purge: Purge) -> PackedCounts:
    """Return what is packed of a purge's subject; in the caller's transaction, changing nothing."""
    found = PackedCounts(0, Counter(), set(), set())
    if purge.whole_tenant:
        return found
    covers, count = _covers(msgspec.structs.replace(purge, runs=()), None, -1), 0
    async for run, events in packed_with(connection, _selection(purge, None)):
        for each in events:
            count += covers(run, each)
            if purge.user_id is None:
                continue
            if each.user_id == purge.user_id:
                found.named.add(run.workflow_id)
            elif each.user_id is None:
                found.open.add(run.workflow_id)
                found.unnamed[run.workflow_id] += each.timestamp <= purge.at
    return found._replace(events=count)


def _selection(purge: Purge, types: Sequence[str] | None) -> PackedSelection:
    subject = {name: getattr(purge, name) for name in SUBJECTS}
    return PackedSelection(purge.tenant, **subject, runs=purge.runs, types=types)


def _covers(purge: Purge, types: Sequence[str] | None, since: int) -> Covers:
    """Return the condition of the statement `episodic_events` in purges.sql, of types given."""
    user, session, workflow = purge.user_id, purge.session_id, purge.workflow_id
    runs = frozenset(purge.runs)

    def covers(run: PackedRun, event: PackedEvent) -> bool:
        return (
            (user is not None and event.user_id == user)
            or (session is not None and event.session_id == session)
            or (workflow is not None and run.workflow_id == workflow)
            or (event.user_id is None and run.workflow_id in runs)
        ) and since < event.timestamp <= (purge.at if types is None else event.timestamp)

    return covers
