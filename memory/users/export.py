"""Exports everything that Postgres has of a user: JSON lines, one object a line with its kind.

What is exported is what a purge of the user would delete (`sinks/postgres/purges.py`), apart from
vectors, which are numbers made from the queries, and the state of detectors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from psycopg import AsyncConnection, IsolationLevel
from psycopg.rows import dict_row

from headstart.keys import context_part
from memory.episodes.hashes import id_text
from memory.episodes.imported import exported
from memory.retrieval.journal import asking_writer
from memory.store.reading import episodes_of
from memory.users.profiles import SQL
from sinks.postgres.encryption.reading import TextReader
from sinks.postgres.packing.reading import PackedRun, TraceReader, row_of
from sinks.postgres.purges import open_runs
from sinks.postgres.reading import tenant_scope

KINDS: Final = ("profile", "event", "episode", "retrieval", "threshold", "notice")
"""What a line may be, in this order. Cases are episodes: they are made from them when asked."""
AT_ONCE: Final = 500
_OF_RUN: Final = frozenset(("episode", "workflow_type", "workflow_id"))
"""Fields of a stage that name the run that used what was found."""
_OF_ASKING: Final = _OF_RUN | {"query_hash", "writer"}
"""Fields about the run that asked: left out if another user asked."""
_NIL: Final = "00000000-0000-0000-0000-000000000000"

Line = dict[str, Any]


async def user_export(
    connection: AsyncConnection[Any], tenant: str, user_id: str
) -> AsyncIterator[Line]:
    """Yield everything of a user, each as an object with `kind`, one of `KINDS`.

    Read in one transaction, as it was when that began; iterate to the end, or close the iterator.
    Raises `TraceDamaged` for packed events that cannot be read, and `EncryptionKeyMissing`.
    """
    before = connection.isolation_level
    await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
    try:
        async with tenant_scope(connection, tenant):
            async for line in _Reading(connection, tenant, user_id).lines():
                yield line
    finally:
        await connection.set_isolation_level(before)


class _Reading:
    """The parts of one export, within its transaction."""

    def __init__(self, connection: AsyncConnection[Any], tenant: str, user_id: str) -> None:
        self._connection = connection
        self._texts = TextReader(connection)
        part = context_part("user_id", user_id)
        self._writer = asking_writer(tenant, user_id)
        self._base = {
            "tenant": tenant, "user_id": user_id, "part": part, "limit": AT_ONCE,
            "writer": self._writer,
        }  # fmt: skip
        self._tenant, self._user_id = tenant, user_id
        self._ids: list[str] = []

    async def lines(self) -> AsyncIterator[Line]:
        for kind, part in (
            ("profile", self.profiles), ("event", self.events), ("event", self.packed_events),
            ("episode", self.episodes), ("retrieval", self.retrievals),
            ("threshold", self.thresholds), ("notice", self.notices),
        ):  # fmt: skip
            async for each in part():
                yield {"kind": kind, **each}

    async def profiles(self) -> AsyncIterator[Line]:
        for row in await self._rows("profiles"):
            yield row | {"agent_id": row["agent_id"] or None}

    async def events(self) -> AsyncIterator[Line]:
        runs = await open_runs(self._connection, self._tenant, self._user_id)
        after: Mapping[str, Any] = {"after_ms": -1, "after_id": _NIL}
        while rows := await self._rows("events", runs=runs, **after):
            for row in await self._texts.rows(rows):
                yield _event(row)
            after = {"after_ms": rows[-1]["timestamp"], "after_id": rows[-1]["id"]}

    async def packed_events(self) -> AsyncIterator[Line]:
        reader = TraceReader(self._connection)
        after = {"after_id": "", "after_type": ""}
        while found := await self._rows("packed_runs", **after):
            runs = [PackedRun(*row.values()) for row in found]
            for run in runs:
                events = await reader.of_run(run)
                if not any(each.user_id == self._user_id for each in events) and (
                    run.user_id != self._user_id
                ):
                    continue  # another name of the run is equal
                for each in events:
                    if each.user_id in (None, self._user_id):
                        row = row_of(each, run.tenant, run.workflow_type, run.workflow_id)
                        yield _event(await self._texts.row(row))
            after = {"after_id": runs[-1].workflow_id, "after_type": runs[-1].workflow_type}

    async def episodes(self) -> AsyncIterator[Line]:
        after = {"after_id": "", "after_type": ""}
        while rows := await self._rows("episodes", **after):
            for episode in await episodes_of(self._connection, rows):
                line = exported(episode)
                self._ids.append(str(episode.id))
                references = [id_text(each) for each in episode.reference_ids]
                yield line | {"id": id_text(episode.id), "reference_ids": references}
            after = {
                "after_id": rows[-1]["workflow_id"], "after_type": rows[-1]["workflow_type"],
            }  # fmt: skip

    async def retrievals(self) -> AsyncIterator[Line]:
        """Yield stages of retrievals that the user asked for, or that found its episodes.

        Ids of episodes of others are left out.
        """
        own = set(self._ids)
        async for row in self._each("retrievals", ids=self._ids):
            if isinstance(row["data"], dict):  # readers write these rows
                yield row | {"data": _of_user(row["data"], own, self._writer)}

    async def thresholds(self) -> AsyncIterator[Line]:
        async for row in self._each("thresholds"):
            yield row

    async def notices(self) -> AsyncIterator[Line]:
        async for row in self._each("notices"):
            yield {"notice": row.pop("kind"), **row}

    async def _each(self, name: str, **more: Any) -> AsyncIterator[Line]:
        """Yield rows through a cursor of the server: there may be any number of them."""
        async with self._connection.cursor(f"export_{name}", row_factory=dict_row) as cursor:
            cursor.itersize = AT_ONCE
            await cursor.execute(SQL[name], {**self._base, **more})
            async for row in cursor:
                yield row

    async def _rows(self, name: str, **more: Any) -> Sequence[Line]:
        async with self._connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(SQL[name], {**self._base, **more})
            return await cursor.fetchall()


def _event(row: Line) -> Line:
    """Return a row as the event was emitted: unknown fields in place, absent ones left out."""
    extra = row.pop("extra") or {}
    return {name: value for name, value in {**extra, **row}.items() if value is not None}


def _of_user(data: Mapping[str, Any], own: set[str], writer: str) -> Line:
    """Return a stage without what it has of others: episodes and their scores, and a run."""
    left_out: set[str] = set()
    if data.get("writer") != writer:
        left_out |= _OF_ASKING
        if _is_own(data.get("episode"), own):
            left_out -= _OF_RUN
    kept: Line = {name: data[name] for name in data if name not in left_out}
    ids, scores = data.get("episodes"), data.get("scores")
    if isinstance(ids, list):
        places = [place for place, each in enumerate(ids) if _is_own(each, own)]
        kept["episodes"] = [id_text(int(ids[place])) for place in places]
        if isinstance(scores, list) and len(scores) == len(ids):
            kept["scores"] = [scores[place] for place in places]
    return kept


def _is_own(id: object, own: set[str]) -> bool:
    return isinstance(id, str) and id in own
