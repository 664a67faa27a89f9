"""Episodes in Postgres: each event once, its offsets with it, bad rows named and left out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import psycopg
import pytest

from headstart.events.schema import new_id
from sinks.connections import connect_postgres
from sinks.postgres import batch_writer as staging
from sinks.postgres.batch_writer import STAGED_AFTER, RejectedRow, TooManyRejectedRows
from sinks.postgres.episodes import EpisodeSink, encode_event, encode_events
from sinks.postgres.queries import count_events, event_ids, events_of_workflow

pytestmark = pytest.mark.integration

TOPIC = "headstart.events"
NOW_MS = 1_750_000_000_000


def make_event(tenant: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": new_id(),
        "event_type": "task_complete",
        "tenant": tenant,
        "workflow_type": "refund",
        "workflow_id": "w1",
        "timestamp": NOW_MS,
        "data": {},
        **fields,
    }


def lines(events: Sequence[Mapping[str, Any]]) -> list[bytes]:
    return encode_events([orjson.dumps(event) for event in events])


async def accept_none(refused: Sequence[RejectedRow]) -> None:
    raise AssertionError(f"refused: {refused}")


async def store(
    dsn: str,
    events: Sequence[Mapping[str, Any]],
    offsets: Mapping[int, int] | None = None,
    on_refused: Any = accept_none,
) -> int:
    async with await EpisodeSink.open(dsn) as sink:
        rows = lines(events)
        return await sink.store(rows, offsets or {}, topic=TOPIC, epoch=7, on_refused=on_refused)


async def next_offsets(dsn: str, epoch: int = 7) -> dict[int, int]:
    async with await EpisodeSink.open(dsn) as sink:
        return await sink.next_offsets(TOPIC, epoch)


async def read(dsn: str, tenant: str, workflow_id: str = "w1") -> list[dict[str, Any]]:
    async with await connect_postgres(dsn) as connection:
        return await events_of_workflow(connection, tenant, workflow_id)


def test_a_batch_delivered_twice_is_stored_once(migrated: str, tenant: str) -> None:
    events = [make_event(tenant) for _ in range(50)]

    async def twice() -> None:
        async with await EpisodeSink.open(migrated) as sink:
            for expected in (50, 0):
                rows = lines(events)
                stored = await sink.store(rows, {}, topic=TOPIC, epoch=7, on_refused=accept_none)
                assert stored == expected
        async with await connect_postgres(migrated) as connection:
            assert await count_events(connection, tenant) == (50, 50)
            assert await event_ids(connection, tenant) == {event["id"] for event in events}

    asyncio.run(twice())


def test_an_event_twice_in_one_batch_is_stored_once(migrated: str, tenant: str) -> None:
    event = make_event(tenant)
    assert asyncio.run(store(migrated, [event, event])) == 1


def test_after_a_batch_that_the_table_refused_some_go_by_the_stage(
    migrated: str, tenant: str
) -> None:
    """A sender that repeats everything must not make each batch cost a failed attempt."""

    async def run() -> None:
        async with await EpisodeSink.open(migrated) as sink:
            straight = list[bool]()
            copied = sink._copied

            async def seen(rows: Sequence[bytes]) -> bool:
                straight.append(await copied(rows))
                return straight[-1]

            sink._copied = seen  # type: ignore[method-assign]
            double = make_event(tenant)
            for events in ([double], [double, make_event(tenant)], *[[make_event(tenant)]] * 2):
                await sink.store(lines(events), {}, topic=TOPIC, epoch=7, on_refused=accept_none)
            assert straight == [True, False]
            for _ in range(STAGED_AFTER):
                await sink.store(lines([double]), {}, topic=TOPIC, epoch=7, on_refused=accept_none)
            assert straight[2:] == [False]
        async with await connect_postgres(migrated) as connection:
            assert await count_events(connection, tenant) == (3, 3)

    asyncio.run(run())


def test_one_tenant_cannot_suppress_the_rows_of_another(migrated: str, tenant: str) -> None:
    event = make_event(tenant)
    assert asyncio.run(store(migrated, [event, {**event, "tenant": f"{tenant}-2"}])) == 2


def test_offsets_advance_with_the_rows_and_never_backwards(migrated: str, tenant: str) -> None:
    async def steps() -> None:
        await store(migrated, [make_event(tenant)], {0: 10, 3: 2**40})
        assert await next_offsets(migrated) == {0: 10, 3: 2**40}
        await store(migrated, [], {0: 4, 1: 1})
        assert await next_offsets(migrated) == {0: 10, 1: 1, 3: 2**40}
        assert await next_offsets(migrated, epoch=8) == {}

    asyncio.run(steps())


def test_nothing_is_stored_when_the_dead_letters_cannot_be_sent(migrated: str, tenant: str) -> None:
    async def fail(refused: Sequence[RejectedRow]) -> None:
        raise RuntimeError("broker away")

    async def attempt() -> None:
        bad = make_event(tenant, event_type="unheard_of")
        with pytest.raises(RuntimeError, match="broker away"):
            await store(migrated, [make_event(tenant), bad], {0: 2}, fail)
        assert await next_offsets(migrated) == {}
        assert await read(migrated, tenant) == []

    asyncio.run(attempt())


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"id": "no uuid"}, "invalid input syntax for type uuid"),
        ({"event_type": "unheard_of"}, "valid_event_type"),
        ({"data": {"note": "a\x00b"}}, "unsupported Unicode escape sequence"),
        ({"user_id": "a\x00b"}, "invalid byte sequence"),
        ({"workflow_id": "".join(chr(40 + i * 7919 % 50000) for i in range(9000))}, "index row"),
        ({"confidence": 1e300}, "out of range"),
    ],
)
def test_a_bad_row_is_named_and_the_other_99_are_stored(
    migrated: str, tenant: str, bad: dict[str, Any], reason: str
) -> None:
    events = [make_event(tenant) for _ in range(100)]
    events[37].update(bad)
    refused: list[RejectedRow] = []

    async def keep(found: Sequence[RejectedRow]) -> None:
        refused.extend(found)

    assert asyncio.run(store(migrated, events, {0: 100}, keep)) == 99
    assert [refusal.position for refusal in refused] == [37]
    assert reason in refused[0].reason
    assert asyncio.run(next_offsets(migrated)) == {0: 100}


def test_many_bad_rows_in_a_large_batch_are_named_in_order(
    migrated: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MOST_SEARCHED", 3000)
    events = [make_event(tenant, data={"query": "q" * 500}) for _ in range(3000)]
    bad = [0, 1, 700, 1500, 2999]
    for place, index in enumerate(bad):
        events[index].update({"id": "no uuid"} if place % 2 else {"event_type": "unheard_of"})
    refused: list[RejectedRow] = []

    async def keep(found: Sequence[RejectedRow]) -> None:
        refused.extend(found)

    assert asyncio.run(store(migrated, events, {}, keep)) == 2995
    assert [refusal.position for refusal in refused] == bad


def test_bad_rows_are_looked_for_in_no_more_than_can_be_searched(
    migrated: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MOST_SEARCHED", 4)
    events = [make_event(tenant) for _ in range(5)]
    assert asyncio.run(store(migrated, events, {0: 5})) == 5
    events = [make_event(tenant, event_type="no such") for _ in range(5)]
    with pytest.raises(TooManyRejectedRows, match="5 lines"):
        asyncio.run(store(migrated, events, {0: 10}))
    assert asyncio.run(next_offsets(migrated)) == {0: 5}


def test_the_sink_goes_on_after_a_bad_batch(migrated: str, tenant: str) -> None:
    async def keep(refused: Sequence[RejectedRow]) -> None:
        assert len(refused) == 1

    async def batches() -> None:
        async with await EpisodeSink.open(migrated) as sink:
            for epoch in range(8):
                events = [make_event(tenant), make_event(tenant, id="no uuid")]
                rows = lines(events)
                stored = await sink.store(rows, {}, topic=TOPIC, epoch=epoch, on_refused=keep)
                assert stored == 1

    asyncio.run(batches())


def test_concurrent_stores_on_one_sink_do_not_mix(migrated: str, tenant: str) -> None:
    async def both() -> None:
        async with await EpisodeSink.open(migrated) as sink:
            batches = [[make_event(tenant) for _ in range(20)] for _ in range(5)]
            stored = await asyncio.gather(
                *(
                    sink.store(lines(batch), {n: 1}, topic=TOPIC, epoch=7, on_refused=accept_none)
                    for n, batch in enumerate(batches)
                )
            )
            assert stored == [20] * 5
            assert await sink.next_offsets(TOPIC, 7) == dict.fromkeys(range(5), 1)

    asyncio.run(both())


def test_a_cut_connection_stores_nothing_and_raises(migrated: str, tenant: str) -> None:
    async def cut() -> None:
        sink = await EpisodeSink.open(migrated)

        async def kill(_refused: Sequence[RejectedRow]) -> None:
            async with await connect_postgres(migrated) as other:
                await other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )

        events = [make_event(tenant), make_event(tenant, id="no uuid")]
        with pytest.raises(psycopg.OperationalError):
            await sink.store(lines(events), {0: 2}, topic=TOPIC, epoch=7, on_refused=kill)
        await sink.close()
        assert await next_offsets(migrated) == {}
        assert await read(migrated, tenant) == []

    asyncio.run(cut())


@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        (b'"t"', b"null", "not an event"),
        (b'"t"', b"5", "not an event"),
        (b":1", b":1.5", "not an event"),
        (b":1", b":%d" % 10**17, "timestamp: year 3170843 is out of range"),
        (b":1", b":%d" % 10**40, "timestamp: "),
        (b'"tenant":"t",', b"", "not an event"),
        (b"{", b"[", "not an event"),
    ],
)
def test_invalid_events_have_no_line(good: bytes, bad: bytes, reason: str) -> None:
    raw = orjson.dumps(make_event("t", timestamp=1)).replace(good, bad, 1)
    for several in ([raw], [orjson.dumps(make_event("t")), raw]):
        with pytest.raises(ValueError, match=reason):
            encode_events(several)


def test_a_number_that_no_double_holds_is_kept(migrated: str, tenant: str) -> None:
    raw = orjson.dumps(make_event(tenant, data="@", more="@")).replace(b'"@"', b'{"n": 1e400}')

    async def run() -> list[tuple[Any, ...]]:
        async with await EpisodeSink.open(migrated) as sink:
            stored = await sink.store(
                [encode_event(raw)], {}, topic=TOPIC, epoch=7, on_refused=accept_none
            )
            assert stored == 1
        query = "SELECT (data->>'n')::numeric = 1e400, (extra->'more'->>'n')::numeric = 1e400"
        async with await connect_postgres(migrated) as connection:
            return await (
                await connection.execute(query + " FROM episodic_events")  # type: ignore[arg-type]
            ).fetchall()

    assert asyncio.run(run()) == [(True, True)]
