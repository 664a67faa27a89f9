"""Partitions of episodes: the right day, the default for the rest, moved on when a day is made."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime
from typing import Any

import orjson
import psycopg
import pytest

from sinks.connections import connect_postgres
from sinks.postgres.episodes import EpisodeSink, encode_event
from sinks.postgres.partitions import ensure_partitions, partition_name
from tests.sinks.dated_events import event

pytestmark = pytest.mark.integration

TODAY = date(2025, 6, 15)


def ms(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc, arg-type]


async def store(dsn: str, events: list[dict[str, Any]]) -> int:
    async with await EpisodeSink.open(dsn) as sink:
        lines = [encode_event(orjson.dumps(event)) for event in events]
        return await sink.store(lines, {}, topic="t", epoch=1, on_refused=None)  # type: ignore[arg-type]


async def ensure(dsn: str, back: int, ahead: int) -> list[str]:
    async with await connect_postgres(dsn) as connection:
        return await ensure_partitions(connection, TODAY, back, ahead)


def homes(dsn: str) -> dict[int, str]:
    """Return the partition of each stored event, by its time in Unix ms."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT (extract(epoch FROM timestamp) * 1000)::bigint, tableoid::regclass::text"
            " FROM episodic_events"
        ).fetchall()
    return dict(rows)


def test_days_are_made_once(migrated: str) -> None:
    made = ["episodic_events_20250614", "episodic_events_20250615", "episodic_events_20250616"]
    assert asyncio.run(ensure(migrated, 1, 1)) == made
    assert asyncio.run(ensure(migrated, 1, 1)) == []
    assert partition_name(TODAY) == "episodic_events_20250615"


def test_concurrent_workers_make_each_day_once(migrated: str) -> None:
    async def workers() -> list[list[str]]:
        return await asyncio.gather(*(ensure(migrated, 3, 3) for _ in range(3)))

    made = [name for names in asyncio.run(workers()) for name in names]
    assert len(made) == len(set(made)) == 7


def test_events_go_to_their_day_in_utc_or_to_the_default(migrated: str) -> None:
    expected = {
        ms(2025, 6, 15): "episodic_events_20250615",
        ms(2025, 6, 16) - 1: "episodic_events_20250615",
        ms(2025, 6, 16): "episodic_events_20250616",
        ms(2025, 6, 17): "episodic_events_default",
        0: "episodic_events_default",
        253_402_300_799_999: "episodic_events_default",
    }
    asyncio.run(ensure(migrated, 0, 1))
    assert asyncio.run(store(migrated, [event(at) for at in expected])) == len(expected)
    assert homes(migrated) == expected


def test_rows_move_out_of_the_default_when_their_day_is_made(migrated: str) -> None:
    early = [event(ms(2025, 6, 15, 12)), event(ms(2025, 6, 20))]
    assert asyncio.run(store(migrated, early)) == 2
    assert set(homes(migrated).values()) == {"episodic_events_default"}
    asyncio.run(ensure(migrated, 0, 0))
    assert homes(migrated) == {
        ms(2025, 6, 15, 12): "episodic_events_20250615",
        ms(2025, 6, 20): "episodic_events_default",
    }
    assert asyncio.run(store(migrated, early)) == 0


def test_a_held_default_partition_is_left_for_the_next_call(
    migrated: str, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(migrated) as reader:
        reader.execute("SELECT FROM episodic_events_default")
        assert asyncio.run(ensure(migrated, 0, 5)) == []
    assert "the default partition is locked" in caplog.text
    assert len(asyncio.run(ensure(migrated, 0, 5))) == 6


def test_partitions_have_the_indexes_of_the_table(migrated: str) -> None:
    asyncio.run(ensure(migrated, 0, 0))
    with psycopg.connect(migrated) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_indexes WHERE tablename = %s", [partition_name(TODAY)]
        ).fetchone()
    assert found == (5,)
