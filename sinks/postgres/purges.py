"""Carries out purges in Postgres: deletes what one covers, and keeps writers from storing it again.

Writers of events and episodes share a lock of each tenant and read what was purged; a purge has the
lock alone. So a row is either there to be deleted, or its writer knows of the purge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from headstart.keys import context_part
from sinks.postgres.asking_writers import writer_hash
from sinks.postgres.packed_purges import PackedCounts, unpack_subject
from sinks.postgres.packing.reading import PackedRun, TraceReader
from sinks.postgres.packing.trace_format import TraceDamaged
from sinks.postgres.packing.writing import RunKey
from sinks.postgres.statements import load_statements
from topics.control.messages import Purge
from topics.control.purges import (
    SUBJECTS,
    EventSubject,
    PartitionPurges,
    PlacedPurge,
    subject_name,
)

_SQL = load_statements("purges")

RULES: Final[Mapping[str, str]] = {
    "episodic_events": "deleted: events of the subject",
    "episodes": "deleted; a run with events of others is assembled again from those",
    "episode_vectors": "deleted with their episodes",
    "episode_outbox": "deleted with their events",
    "memory_retrievals": "deleted: those that the user asked for, or that name one of the episodes",
    "memory_profiles": "deleted: of the user",
    "memory_policies": "deleted with the whole tenant; else kept, weights learned from all users",
    "trace_dictionaries": "deleted with the whole tenant; else kept, holds what three users share",
    "threshold_history": "deleted: contexts with the subject in their path",
    "notices": "deleted: contexts with the subject in their path",
    "context_watch": "deleted: contexts with the subject in their path",
    "tenant_keys": "kept: no content; later rows need them; `memory keys shred` destroys them",
    "memory_purges": "kept: names the subject, so that late events stay out",
    "memory_audit": "kept: names the subject and counts rows, no content",
}
"""What a purge does to each table with a column `tenant`. A table without a rule fails a test."""

_ALWAYS: Final = (
    "episodic_events", "episodes", "episodes_of_runs", "count_lists", "uncount_merged",
    "episode_vectors", "memory_retrievals", "episode_outbox", "assemble_again",
)  # fmt: skip
_HISTORY: Final = ("threshold_history", "notices", "context_watch")
_ONCE: Final = ("memory_profiles", "memory_policies", "trace_dictionaries", *_HISTORY)
_UNCOUNTED: Final = ("count_lists", "uncount_merged", "assemble_again")
_SELECTED: Final = ("episodic_events", "episodes", "episodes_of_runs", "memory_retrievals")
"""Statements that return how many rows they deleted."""


class StoredPurge(NamedTuple):
    """A purge as `memory_purges` has it: the latest of its subject."""

    purge: Purge
    epoch: int | None
    """Log epoch of the offsets."""
    offsets: Mapping[int, int]
    """Offset of the control record by partition, as far as they are known."""
    rows: int

    def offset(self, partition: int, epoch: int) -> int:
        """Return the record's offset in a partition of a log epoch; -1 where it is not known."""
        return self.offsets.get(partition, -1) if self.epoch == epoch else -1


async def read_purges(
    connection: AsyncConnection[Any],
    tenants: Iterable[str] | None = None,
    limit: int | None = None,
) -> list[StoredPurge]:
    """Return what has been purged of tenants, or of all, the oldest first; at most `limit`."""
    wanted = {"tenants": None if tenants is None else sorted(set(tenants)), "limit": limit}
    rows = await (await connection.execute(_SQL["purges"], wanted)).fetchall()
    return [_stored(row) for row in rows]


async def read_purges_naming(
    connection: AsyncConnection[Any], tenants: Iterable[str], subjects: Iterable[EventSubject]
) -> list[StoredPurge]:
    """Return the purges of tenants that may cover one of some events, the oldest first."""
    users, sessions, workflows = set[str](), set[str](), set[str]()
    for each in subjects:
        users.add(each.user_id or "")
        sessions.add(each.session_id or "")
        workflows.add(each.workflow_id)
    wanted = {
        "tenants": sorted(set(tenants)), "users": _storable(users),
        "sessions": _storable(sessions), "workflows": _storable(workflows),
    }  # fmt: skip
    rows = await (await connection.execute(_SQL["purges_naming"], wanted)).fetchall()
    return [_stored(row) for row in rows]


def _storable(names: Iterable[str]) -> list[str]:
    """Return the names that a purge may have: Postgres takes no NUL, not even in a question."""
    return sorted(name for name in names if name and "\0" not in name)


def _stored(row: Sequence[Any]) -> StoredPurge:
    tenant, user, session, workflow, id, at, runs, epoch, offsets, rows = row
    whole = not (user or session or workflow)
    purge = Purge(
        id, at, tenant, user or None, session or None, workflow or None, whole, tuple(runs)
    )
    return StoredPurge(purge, epoch, {int(key): offset for key, offset in offsets.items()}, rows)


async def require_rights_to_erase(connection: AsyncConnection[Any]) -> None:
    """Raise `InsufficientPrivilege` if the role may not delete all that a purge covers."""
    await connection.execute(_SQL["need_rights"])


async def open_runs(
    connection: AsyncConnection[Any],
    tenant: str,
    user_id: str,
    packed: PackedCounts | None = None,
    known: Iterable[str] = (),
) -> list[str]:
    """Return the workflow ids of a user's runs that have events without a user id.

    `packed`: what is packed of the user; without it, only events that have rows are looked at.
    `known`: further runs of the user.
    """
    named = {*known, *(packed.named if packed else ())}
    unnamed = packed.open if packed else ()
    wanted = {
        "tenant": tenant, "user_id": user_id, "named": sorted(named), "unnamed": sorted(unnamed)
    }  # fmt: skip
    rows = await (await connection.execute(_SQL["open_runs"], wanted)).fetchall()
    return [row[0] for row in rows]


async def preview_purge(connection: AsyncConnection[Any], purge: Purge) -> tuple[int, int, int]:
    """Return how many events, episodes and logged retrievals a purge would delete now.

    Of the retrievals, those that the user asked for.
    """
    row = await (await connection.execute(_SQL["preview"], _parameters(purge))).fetchone()
    return (row[0], row[1], row[2]) if row else (0, 0, 0)


async def remaining_rows(connection: AsyncConnection[Any], purge: Purge) -> dict[str, int]:
    """Return how many rows that a purge covers are still there, by table."""
    rows = await (await connection.execute(_SQL["remaining"], _parameters(purge))).fetchall()
    counts = dict(rows)
    counts["episodic_events"] += await _remaining_packed(connection, purge)
    return {table: count for table, count in counts.items() if count}


async def _remaining_packed(connection: AsyncConnection[Any], purge: Purge) -> int:
    """Return how many packed events a purge covers; a trace that cannot be read counts as one."""
    rows = await (await connection.execute(_SQL["packed_runs"], _parameters(purge))).fetchall()
    reader = TraceReader(connection)
    covering = PartitionPurges([PlacedPurge(purge, -1)])  # by time alone
    count = 0
    for run in (PackedRun(*row) for row in rows):
        try:
            events = await reader.of_run(run)
        except TraceDamaged:
            count += 1
            continue
        for each in events:
            subject = EventSubject(
                run.tenant, run.workflow_id, each.timestamp, each.user_id, each.session_id
            )
            count += covering.covers(subject, 0)
    return count


async def is_known(connection: AsyncConnection[Any], purge: Purge) -> bool:
    """Return whether this purge, or a later one of its subject, was carried out here in full.

    That is by the command: the sink carries it out partition by partition.
    """
    return await _ask(connection, "known", purge)


async def _ask(connection: AsyncConnection[Any], question: str, purge: Purge) -> bool:
    row = await (await connection.execute(_SQL[question], _parameters(purge))).fetchone()
    return bool(row and row[0])


async def purged_types(connection: AsyncConnection[Any], purge: Purge, *, known: bool) -> list[str]:
    """Return the workflow types of what a purge would still delete, whatever its time."""
    wanted = _parameters(purge, since=purge.at if known else -1)
    rows = await (await connection.execute(_SQL["types"], wanted)).fetchall()
    return [row[0] for row in rows]


async def erase(
    connection: AsyncConnection[Any],
    purge: Purge,
    *,
    types: Sequence[str] | None = None,
    known: bool = False,
    epoch: int | None = None,
    offsets: Mapping[int, int] | None = None,
) -> dict[str, int]:
    """Delete what a purge covers, within a transaction that has locked its tenant alone.

    Returns the number of deleted rows by table. `types`: only these workflow types, whatever the
    events' times, because all that is stored of them came before the record; None: all, up to the
    purge's time. `known`: it was carried out before, and only newer events are looked for.
    `epoch`, `offsets`: where the control record is.
    """
    given = _parameters(purge, since=purge.at if known else -1, types=types)
    packed = await unpack_subject(connection, purge, types, given["since"])
    await connection.execute(_SQL["create_lists"])
    await _note_packed(connection, packed.runs)
    counts = {"episodic_events": packed.events}
    vectors = await (await connection.execute(_SQL["has_vectors"])).fetchone()
    for name in _ALWAYS if known else (*_ALWAYS, *_ONCE):
        if (name == "episode_vectors" and not (vectors and vectors[0])) or (
            name == "assemble_again" and purge.whole_tenant
        ):
            continue
        cursor = await connection.execute(_SQL[name], given)
        if name in _UNCOUNTED:
            continue
        row = await cursor.fetchone() if name in _SELECTED else None
        table = name.removesuffix("_of_runs")
        counts[table] = counts.get(table, 0) + (row[0] if row else max(0, cursor.rowcount))
    await _mark(connection, purge, given, counts, epoch, offsets or {})
    return {table: count for table, count in counts.items() if count}


async def _note_packed(connection: AsyncConnection[Any], runs: Sequence[RunKey]) -> None:
    if runs:
        _tenants, ids, types = zip(*runs, strict=True)
        given = {"workflow_ids": list(ids), "workflow_types": list(types)}
        await connection.execute(_SQL["note_packed"], given)


async def erase_history(connection: AsyncConnection[Any], purge: Purge) -> dict[str, int]:
    """Delete what the history worker stored of the subject's contexts; return rows by table."""
    given = _parameters(purge)
    counts = {}
    for name in _HISTORY:
        counts[name] = max(0, (await connection.execute(_SQL[name], given)).rowcount)
    return {table: count for table, count in counts.items() if count}


async def _mark(
    connection: AsyncConnection[Any],
    purge: Purge,
    given: Mapping[str, Any],
    counts: Mapping[str, int],
    epoch: int | None,
    offsets: Mapping[int, int],
) -> None:
    """Store the purge, and an audit row if it deleted anything or is new."""
    places = Jsonb({str(partition): offset for partition, offset in offsets.items()})
    more = {"id": purge.id, "rows": sum(counts.values()), "epoch": epoch, "offsets": places}
    known = await _ask(connection, "is_marked", purge)
    await connection.execute(_SQL["memory_purges"], {**given, **more})
    if not known or any(counts.values()):
        field, value = subject_name(purge)
        about = {"id": purge.id, field: value, "rows": {k: n for k, n in counts.items() if n}}
        await connection.execute(_SQL["memory_audit"], {**given, "counts": Jsonb(about)})


async def purge_counts(connection: AsyncConnection[Any], purge: Purge) -> dict[str, int]:
    """Return how many rows of each table a purge has deleted, by its audit rows."""
    wanted = {"tenant": purge.tenant, "id": purge.id}
    found: dict[str, int] = {}
    for counts, _at in await (await connection.execute(_SQL["audits"], wanted)).fetchall():
        for table, count in counts.get("rows", {}).items():
            found[table] = found.get(table, 0) + count
    return found


def _parameters(
    purge: Purge, since: int = -1, types: Sequence[str] | None = None
) -> dict[str, Any]:
    field, value = subject_name(purge)
    return {
        "tenant": purge.tenant,
        "at": purge.at,
        "whole": purge.whole_tenant,
        "runs": list(purge.runs),
        "since": since,
        "types": None if types is None else list(types),
        "part": None if purge.whole_tenant else context_part(field, value),
        "writer": writer_hash(purge.tenant, f"user:{purge.user_id}") if purge.user_id else None,
        **{name: getattr(purge, name) for name in SUBJECTS},
    }
