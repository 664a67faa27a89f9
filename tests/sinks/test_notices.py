"""Notices beside the history, on a real Postgres: none lost, none twice, whichever process dies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg
import pytest

from agents.storage.notice_detection import NoticeDetector
from processing.records.batch import RecordBatch
from processing.records.sink_lines import SinkBatch, unpack_thresholds
from sinks.connections import connect_postgres
from sinks.postgres.batch_writer import Hooks
from sinks.postgres.history import HistorySink, encode_thresholds
from sinks.postgres.notices import (
    NoticeRetention,
    StoredContext,
    add_notices,
    delete_sent,
    keep_states,
    mark_sent,
    newest_notices,
    newest_values,
    unsent_notices,
)
from tests.processing.notice_streams import RETAIL, drifting, flooded, notice, run, value
from topics.catalogue import HISTORY_GROUP, THRESHOLDS
from topics.schema.json_schema import PublishedThreshold

pytestmark = pytest.mark.integration

EPOCH = 3


class Worker:
    """A history worker from its batches on: unpacked, looked at, stored."""

    def __init__(self, dsn: str) -> None:
        self.dsn, self.noticer = dsn, NoticeDetector(EPOCH)
        self.sink: HistorySink | None = None

    async def store(
        self, values: Sequence[PublishedThreshold], begin: int, fail: Any = None
    ) -> None:
        """Store values as offsets from `begin` on. `fail`: awaited before the commit."""
        if self.sink is None:
            self.sink = await HistorySink.open(self.dsn)
        count = len(values)
        raw: list[bytes | None] = [msgspec.json.encode(each) for each in values]
        batch = RecordBatch(THRESHOLDS.name, 0, begin, begin + count,
                            list(range(begin, begin + count)), [0] * count,
                            [b"k"] * count, raw)  # fmt: skip
        unpacked = SinkBatch()
        unpacked.add(batch, range(count), unpack_thresholds, encode_thresholds, HISTORY_GROUP)
        offsets = {0: batch.end}
        notices = self.noticer.of_batch(unpacked, offsets)

        async def first(connection: Any) -> None:
            await notices.add(connection)
            if fail is not None:
                await fail()

        async def refuse(found: Any) -> None:
            raise AssertionError(found)

        await self.sink.store(
            unpacked.lines, offsets, topic=THRESHOLDS.name, epoch=EPOCH, on_refused=refuse,
            hooks=Hooks(first),
        )  # fmt: skip
        notices.committed()

    async def close(self) -> None:
        if self.sink is not None:
            await self.sink.close()


def ids(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM notices ORDER BY id")]


STREAM = [*drifting(5, 5_000, 3_000), value(RETAIL, 9_000, 0, 0, 0.0, deleted=True, learner="")]
EXPECTED = sorted(each.id for each in run(STREAM).notices)


def test_expected_signals_are_not_empty() -> None:
    assert len(EXPECTED) >= 1


def test_every_notice_is_there_once_however_often_workers_die_and_commits_fail(
    migrated: str,
) -> None:
    chance = random.Random(2)

    async def broken() -> None:
        raise ConnectionError

    async def go() -> None:
        begin, worker = 0, Worker(migrated)
        while begin < len(STREAM):
            size = chance.randrange(1, 700)
            if chance.random() < 0.3:
                with pytest.raises(ConnectionError):
                    await worker.store(STREAM[begin : begin + size], begin, broken)
            if chance.random() < 0.3:
                await worker.close()
                worker = Worker(migrated)
            again = chance.randrange(0, 50) if chance.random() < 0.3 else 0
            first = max(0, begin - again)  # as after a commit whose answer was lost
            await worker.store(STREAM[first : begin + size], first)
            begin = min(len(STREAM), begin + size)
        await worker.close()

    asyncio.run(go())
    assert ids(migrated) == EXPECTED
    with psycopg.connect(migrated) as connection:
        assert connection.execute("SELECT count(*) FROM context_watch").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM threshold_history").fetchone() == (5_001,)


def test_two_workers_that_store_the_same_at_once_find_it_once(migrated: str) -> None:
    async def all_of(worker: Worker, size: int) -> None:
        for begin in range(0, len(STREAM), size):
            await worker.store(STREAM[begin : begin + size], begin)
        await worker.close()

    async def go() -> None:
        await asyncio.gather(all_of(Worker(migrated), 311), all_of(Worker(migrated), 97))

    asyncio.run(go())
    assert ids(migrated) == EXPECTED


def test_a_user_who_floods_is_found_across_restarts(migrated: str) -> None:
    values = [
        msgspec.structs.replace(each, offset=place)
        for place, each in enumerate(flooded(9_000, range(6_000, 7_500)))
    ]

    async def go() -> None:
        for begin in range(0, len(values), 1_500):
            worker = Worker(migrated)
            await worker.store(values[begin : begin + 1_500], begin)
            await worker.close()

    asyncio.run(go())
    assert ids(migrated) == sorted(each.id for each in run(values).notices)
    with psycopg.connect(migrated) as connection:
        users = connection.execute("SELECT evidence->>'user' FROM notices WHERE evidence ? 'user'")
        assert {row[0] for row in users} == {"b%d"}


def test_the_newest_values_of_contexts_are_stored(migrated: str) -> None:
    async def go() -> None:
        worker = Worker(migrated)
        await worker.store(STREAM[:50], 0)
        async with await connect_postgres(migrated) as connection:
            here, gone = ("acme", RETAIL), ("acme", "gone")
            found = await newest_values(connection, [here, gone])
            assert found == {
                here: StoredContext(EPOCH, 50, 50, None),
                gone: StoredContext(None, None, None, None),
            }
            kept = {here: NoticeRetention(3, 50, b"\0\1"), gone: NoticeRetention(3, 1, b"x")}
            await keep_states(connection, kept)
            await keep_states(connection, {gone: None, here: NoticeRetention(3, 51, b"\2")})
            states = [each.state for each in (await newest_values(connection, kept)).values()]
            assert sorted(states, key=str) == [None, b"\2"]
        await worker.close()

    asyncio.run(go())


def test_unsent_notices_are_oldest_first_until_marked(migrated: str) -> None:
    async def go() -> None:
        async with await connect_postgres(migrated) as connection:
            for name, partition in (("a", 1), ("b", 2), ("c", 1)):
                assert await add_notices(connection, [(partition, notice(name))] * 2) == 1
            assert await add_notices(connection, [(1, notice("a"))]) == 0
            assert await unsent_notices(connection, [1, 3], 9) == [
                (1, notice("a")), (1, notice("c")),
            ]  # fmt: skip
            assert [each.id for _, each in await unsent_notices(connection, [1, 2], 2)] == [
                "a",
                "b",
            ]
            await mark_sent(connection, ["a", "b", "unknown"])
            assert await unsent_notices(connection, [1, 2], 9) == [(1, notice("c"))]

    asyncio.run(go())


def test_old_sent_notices_are_deleted_and_unsent_ones_kept(migrated: str) -> None:
    async def go() -> None:
        async with await connect_postgres(migrated) as connection:
            await add_notices(connection, [(0, notice(name)) for name in ("old", "unsent", "new")])
            await mark_sent(connection, ["old", "new"])
            aged = "UPDATE notices SET found = found - interval '31 days' WHERE id <> 'new'"
            await connection.execute(aged)
            assert await delete_sent(connection, 31.5) == 0
            assert await delete_sent(connection, 30.5) == 1
            assert await delete_sent(connection, 30.5) == 0
            assert sorted(each.id for _, each in await newest_notices(connection, 9)) == [
                "new", "unsent",
            ]  # fmt: skip

    asyncio.run(go())


def test_a_user_name_with_nul_still_gives_a_notice(migrated: str) -> None:
    values = [
        msgspec.structs.replace(each, offset=place, path=each.path.replace("b%25d", "b%00d"))
        for place, each in enumerate(flooded(9_000, range(6_000, 7_500)))
    ]

    async def go() -> None:
        worker = Worker(migrated)
        await worker.store(values, 0)
        await worker.close()

    asyncio.run(go())
    with psycopg.connect(migrated) as connection:
        users = connection.execute("SELECT evidence->>'user' FROM notices WHERE evidence ? 'user'")
        assert {row[0] for row in users} == {"b\ufffdd"}


def test_notices_are_listed_newest_first(migrated: str) -> None:
    async def go() -> None:
        async with await connect_postgres(migrated) as connection:
            for name, more in (("a", {}), ("b", {"tenant": "globex"}), ("c", {"kind": "anomaly"})):
                await add_notices(connection, [(0, notice(name, **more))])
            everything = await newest_notices(connection, 9)
            assert [each.id for _, each in everything] == ["c", "b", "a"]
            assert everything[2][1] == notice("a")
            assert [each.id for _, each in await newest_notices(connection, 2)] == ["c", "b"]
            of_acme = await newest_notices(connection, 9, tenant="acme", kinds=["drift", "x"])
            assert [each.id for _, each in of_acme] == ["a"]
            newest = everything[0][0]
            assert await newest_notices(connection, 9, since=newest + 60_000) == []
            assert len(await newest_notices(connection, 9, since=newest - 60_000)) == 3

    asyncio.run(go())
