"""Two tenants with users, and purges as the event sink carries them out, for tests of erasure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import orjson
import psycopg
from psycopg import sql

from agents.memory.assembling import StepTarget, assemble_next
from agents.memory.embedding import GuardedEmbedder
from agents.storage.purging import BatchPurges
from headstart.keys import event_key
from memory.store.vectors import can_store_vectors, use_model
from processing.records.batch import RecordBatch
from processing.records.partitioner import partition_for
from processing.records.sink_lines import SinkBatch, unpack_events, until_purge
from sinks.connections import connect_postgres
from sinks.postgres.batch_writer import Hooks
from sinks.postgres.episodes import EpisodeSink
from sinks.postgres.purges import erase
from sinks.postgres.tenant_locks import lock_tenants
from tests.memory.stored_runs import AT, WordEmbedder, event
from topics.control.messages import Purge, control_records
from topics.epoch import Epoch

CANARY = "canary-9f3c"
LATER = AT + 3_600_000
PARTITIONS = 4
EPOCH = Epoch(7, PARTITIONS)
Event = dict[str, Any]


def user_run(tenant: str, user: str | None, name: str, query: str, **fields: Any) -> list[Event]:
    """Return a run whose query, arguments and response hold `query`."""
    more: Event = {"user_id": user, **fields} if user else dict(fields)
    context = {"domain": "retail", "note": query}
    call = {"arguments": {"of": query}, "context": context}
    said = {"outcome": "success", "query": query, "response": query, "context": context}
    return [
        event(tenant, name, 0, tool_id="find", success=True, data=call, **more),
        event(tenant, name, 1, "workflow_complete", data=said, **more),
    ]


def everybody() -> list[Event]:
    """Return runs of two tenants; those of u1 at acme hold the canary."""
    return [
        *user_run("acme", "u1", "mine-1", f"{CANARY} refund"),
        *user_run("acme", "u1", "mine-2", f"{CANARY} invoice", session_id="s1"),
        *user_run("acme", "u1", "elsewhere", f"{CANARY} order", workflow_type="order"),
        *user_run("acme", "u2", "other", "refund of somebody else", session_id="s1"),
        *user_run("acme", None, "nobody", "refund of nobody"),
        *user_run("rival", "u1", "namesake", "refund of a namesake"),
    ]


def of_user(user: str = "u1", tenant: str = "acme", **fields: Any) -> Purge:
    """Return a purge of a user at `LATER`."""
    return Purge(**{"id": "p1", "at": LATER, "tenant": tenant, "user_id": user, **fields})


class Log:
    """The log of some partitions, and the sink and memory worker that follow it."""

    def __init__(self) -> None:
        self.partitions: list[RecordBatch] = [
            RecordBatch("headstart.events", n, 0, 0, [], [], [], []) for n in range(PARTITIONS)
        ]

    def write(self, *given: Event | Purge) -> None:
        """Append events, each to its partition, and purges to all."""
        for each in given:
            if isinstance(each, Purge):
                for record in control_records(each, range(PARTITIONS), None):
                    headers = tuple(record.headers)
                    self._append(record.partition, record.key or b"", record.value, headers)
                continue
            place = partition_for(each["tenant"], each["workflow_type"], PARTITIONS)
            key = event_key(each["tenant"], each["workflow_type"])
            self._append(place, key, orjson.dumps(each), ())

    def _append(self, partition: int, key: bytes, value: bytes, headers: Sequence[Any]) -> None:
        batch = self.partitions[partition]
        if headers:
            batch.headers[batch.end] = headers
        batch.offsets.append(batch.end)
        batch.timestamps.append(LATER + 60_000)
        batch.keys.append(key)
        batch.values.append(value)
        batch.end += 1

    async def store(self, dsn: str) -> None:
        """Store the whole log as the event sink does, from its beginning."""
        async with await EpisodeSink.open(dsn) as sink:
            for batch in self.partitions:
                begin = 0
                while begin < len(batch):
                    unpacked = SinkBatch()
                    run, purge = until_purge(batch, range(begin, len(batch)), None)
                    if purge is not None:
                        unpacked.purges.append(purge)
                    unpacked.add(batch, run, unpack_events, sink.encode, sink.consumer)
                    assert not unpacked.dead_letters
                    hooks = BatchPurges(unpacked, EPOCH)
                    await sink.store(
                        unpacked.lines, {batch.partition: run.stop}, topic=batch.topic,
                        epoch=EPOCH.number, on_refused=_refuse, hooks=Hooks(hooks.begin, hooks.end),
                    )  # fmt: skip
                    begin = run.stop


async def _refuse(refused: Any) -> None:
    raise AssertionError(refused)


async def assemble(dsn: str) -> None:
    """Have the memory worker take everything."""
    guarded = GuardedEmbedder(WordEmbedder(), retry_s=0)
    async with await connect_postgres(dsn) as connection:
        assert await can_store_vectors(connection)
        model = await use_model(connection, guarded.embedder)
        while (await assemble_next(StepTarget(connection, guarded, model.id), 500, 0)).rows:
            pass


def filled(dsn: str, *events: Event) -> Log:
    """Store a log of events, and their episodes, with all that refers to u1."""
    log = Log()
    log.write(*events)

    async def steps() -> None:
        await log.store(dsn)
        await assemble(dsn)

    asyncio.run(steps())
    return log


def purged(dsn: str, purge: Purge) -> dict[str, int]:
    """Carry out a purge as the command does."""

    async def steps() -> dict[str, int]:
        async with await connect_postgres(dsn) as connection, connection.transaction():
            await lock_tenants(connection, (), [purge.tenant])
            return await erase(connection, purge)

    return asyncio.run(steps())


def dump(dsn: str) -> dict[str, list[str]]:
    """Return every row of every table as text, sorted."""
    found = {}
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition "
            "AND relnamespace = 'public'::regnamespace ORDER BY 1"
        ).fetchall()
        for (table,) in tables:
            rows = connection.execute(
                sql.SQL("SELECT x::text FROM {} AS x").format(sql.Identifier(table))
            )
            found[table] = sorted(row[0] for row in rows)
    return found


def found_in(dsn: str, text: str) -> list[str]:
    """Return the tables that hold a text."""
    return [table for table, rows in dump(dsn).items() if any(text in row for row in rows)]


def refer_to(dsn: str, workflow_id: str, user: str = "u1", tenant: str = "acme") -> None:
    """Add rows that refer to an episode and its user wherever there may be some."""
    path = f"workflow_type=refund/domain=retail/user_id={user}"
    with psycopg.connect(dsn) as connection:
        (id,) = connection.execute(
            "SELECT id FROM episodes WHERE tenant = %s AND workflow_id = %s", [tenant, workflow_id]
        ).fetchone() or (0,)
        retrieval = uuid4()
        for stage in ("retrieve", "reuse"):
            connection.execute(
                "INSERT INTO memory_retrievals (id, tenant, stage, data) VALUES (%s, %s, %s, "
                "jsonb_build_object('episodes', jsonb_build_array(%s::text)))",
                [retrieval, tenant, stage, str(id)],
            )
        connection.execute("INSERT INTO memory_profiles VALUES (%s, %s, 'agent')", [tenant, user])
        connection.execute(
            "INSERT INTO threshold_history VALUES "
            "(%s, 'refund', %s, 1, 1, .5, .5, 1, 'td', to_timestamp(0))",
            [tenant, path],
        )
        connection.execute(
            "INSERT INTO notices VALUES (%s, 'drift', %s, 'refund', %s, 1, '{}', 0)",
            [str(uuid4()), tenant, path],
        )
        connection.execute("INSERT INTO context_watch VALUES (%s, %s, 1, 1, '')", [tenant, path])
