"""A replica takes over from the primary: sinks notice what it lacks, and store it again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import orjson
import psycopg
import pytest

from console.inspection.doctor.databases import check_postgres
from headstart.events.schema import new_id
from sinks.connections import PostgresUnreachable, connect_postgres
from sinks.postgres.batch_writer import BatchWriter, RejectedRow
from sinks.postgres.episodes import EpisodeSink, encode_events
from sinks.postgres.history import HistorySink, encode_thresholds
from sinks.postgres.migrate import migrate
from sinks.postgres.permissions import PermissionMissing
from sinks.postgres.progress import TransactionsLost
from sinks.postgres.queries import event_ids
from sinks.postgres.statements import load_statements
from tests.patience import PATIENCE_S, until
from tests.standbys import PostgresPair

pytestmark = pytest.mark.integration

EPOCH = 7


def events(tenant: str, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": new_id(), "event_type": "task_complete", "tenant": tenant,
            "workflow_type": "refund", "workflow_id": f"w{number}",
            "timestamp": 1_750_000_000_000 + number, "data": {},
        }
        for number in range(count)
    ]  # fmt: skip


def thresholds(tenant: str, count: int) -> list[dict[str, Any]]:
    return [
        {
            "tenant": tenant, "workflow_type": "refund", "path": "workflow_type=refund",
            "speculate": 0.5, "suggest": 0.4, "epoch": EPOCH, "offset": number,
            "outcomes": number, "learner": "td", "at": 1_750_000_000_000 + number,
        }
        for number in range(count)
    ]  # fmt: skip


async def none_refused(refused: Sequence[RejectedRow]) -> None:
    raise AssertionError(f"refused: {refused}")


async def store(sink: BatchWriter, lines: Sequence[bytes], begin: int, end: int) -> int:
    """Store the records from `begin` to `end`, by a sink that has stored those before."""
    return await sink.store(
        lines[begin:end], {0: end}, topic="t", epoch=EPOCH, on_refused=none_refused,
        known={0: begin},
    )  # fmt: skip


def lost_by_failover(
    pair: PostgresPair, kind: type[BatchWriter], lines: Sequence[bytes]
) -> tuple[TransactionsLost, int]:
    """Store 6 records of which the replica gets 2; let it take over; store the rest in order.

    Returns the error at the first transaction after that, and the number of rows then stored.
    """

    async def run() -> tuple[TransactionsLost, int]:
        async with await kind.open(pair.url) as sink:
            assert await store(sink, lines, 0, 2) == 2
            pair.wait_replicated()
            pair.cut()
            assert await store(sink, lines, 2, 4) == 2
            assert await store(sink, lines, 4, 6) == 2
            pair.fail_over()
            with pytest.raises(psycopg.OperationalError):
                await store(sink, lines, 6, 8)
        async with await kind.open(pair.url) as sink:
            with pytest.raises(TransactionsLost) as lost:
                await store(sink, lines, 6, 8)
            assert await sink.next_offsets("t", EPOCH) == {0: 2}, "nothing of it is stored"
            return lost.value, await store(sink, lines, 2, 8)

    return asyncio.run(run())


def test_the_primary_is_found_and_a_replica_is_not_written(postgres_pair: PostgresPair) -> None:
    pair = postgres_pair

    async def port() -> int:
        async with await connect_postgres(pair.url) as connection:
            return connection.info.port

    assert asyncio.run(port()) == pair.primary.port
    with pytest.raises(PermissionMissing, match="name the primary, or all hosts"):
        asyncio.run(migrate(pair.replica.dsn))
    pair.primary.kill()
    with pytest.raises(PostgresUnreachable) as refused:
        asyncio.run(port())
    said = str(refused.value)
    at = f"127.0.0.1:{pair.replica.port},127.0.0.1:{pair.primary.port}/headstart"
    assert at in said
    assert "no host that answers is one that target_session_attrs asks for; wait until" in said
    pair.promote()
    assert asyncio.run(port()) == pair.replica.port


def test_two_primaries_are_found(postgres_pair: PostgresPair) -> None:
    def said() -> dict[str, str]:
        found, _ = asyncio.run(check_postgres(postgres_pair.url, time.time))
        return {each.what: each.level for each in found if each.check == "postgres"}

    replica, primary = (
        f"127.0.0.1:{each.port}" for each in (postgres_pair.replica, postgres_pair.primary)
    )
    before = said()
    assert before[f"{replica} is a standby"] == "ok"
    assert before[f"{primary} takes writes, and a commit waits for no standby"] == "ok"
    postgres_pair.promote()
    both = f"{replica} and {primary} are primaries: what one stores is not in the other"
    assert said()[both] == "error"


def test_a_migration_that_a_failover_ends_is_done_by_the_next(postgres_pair: PostgresPair) -> None:
    pair = postgres_pair
    lock = load_statements("migrations")["lock"]
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'"
    with ThreadPoolExecutor() as pool:
        with closing(psycopg.connect(pair.primary.dsn)) as holder:
            holder.execute(lock)
            migrating = pool.submit(lambda: asyncio.run(migrate(pair.url)))
            until(lambda: pair.primary.ask(waiting))
            pair.fail_over()
        with pytest.raises(PostgresUnreachable):
            migrating.result(PATIENCE_S)
    assert asyncio.run(migrate(pair.url))
    assert asyncio.run(migrate(pair.url)) == []


def test_events_that_the_replica_lacks_are_noticed_and_stored_once(
    postgres_pair: PostgresPair, tenant: str
) -> None:
    asyncio.run(migrate(postgres_pair.url))
    emitted = events(tenant, 8)
    lines = encode_events([orjson.dumps(each) for each in emitted])
    lost, rows = lost_by_failover(postgres_pair, EpisodeSink, lines)
    assert (lost.stored, lost.known, rows) == ({0: 2}, {0: 6}, 6)

    async def ids() -> list[str]:
        async with await connect_postgres(postgres_pair.url) as connection:
            return sorted(await event_ids(connection, tenant))

    assert asyncio.run(ids()) == sorted(each["id"] for each in emitted)


def test_history_that_the_replica_lacks_is_noticed(
    postgres_pair: PostgresPair, tenant: str
) -> None:
    asyncio.run(migrate(postgres_pair.url))
    lines = encode_thresholds([orjson.dumps(each) for each in thresholds(tenant, 8)])
    lost, rows = lost_by_failover(postgres_pair, HistorySink, lines)
    assert (lost.stored, lost.known, rows) == ({0: 2}, {0: 6}, 6)


def test_a_commit_whose_answer_is_lost_is_not_repeated_if_the_replica_has_it(
    postgres_pair: PostgresPair, tenant: str
) -> None:
    pair = postgres_pair
    asyncio.run(migrate(pair.url))
    lines = encode_events([orjson.dumps(each) for each in events(tenant, 4)])

    async def run() -> int:
        async with await EpisodeSink.open(pair.url) as sink:
            assert await store(sink, lines, 0, 2) == 2
            assert await store(sink, lines, 2, 4) == 2  # and its writer does not get the answer
            pair.wait_replicated()
            pair.fail_over()
        async with await EpisodeSink.open(pair.url) as sink:
            again = await store(sink, lines, 2, 4)
            assert await sink.next_offsets("t", EPOCH) == {0: 4}
            return again

    assert asyncio.run(run()) == 0
