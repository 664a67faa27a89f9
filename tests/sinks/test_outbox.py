"""The outbox: the sink's transaction notes the runs that it has stored events of, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import psycopg
import pytest

from headstart.events.schema import new_id
from sinks.postgres.batch_writer import RejectedRow
from sinks.postgres.episodes import EpisodeSink, encode_events, touched_runs

pytestmark = pytest.mark.integration

NOW_MS = 1_750_000_000_000
NOTED = """SELECT tenant, workflow_id, (extract(epoch FROM first_at) * 1000)::bigint,
    (extract(epoch FROM last_at) * 1000)::bigint FROM episode_outbox ORDER BY 1, 2"""
AWKWARD = "back\\slash\ttab"


def made(tenant: str, workflow_id: str, at: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "id": new_id(),
        "event_type": "task_complete",
        "tenant": tenant,
        "workflow_type": "refund",
        "workflow_id": workflow_id,
        "timestamp": NOW_MS + at,
        **more,
    }


async def accept(_refused: Sequence[RejectedRow]) -> None:
    pass


async def fail(_refused: Sequence[RejectedRow]) -> None:
    raise RuntimeError("no dead letters can be sent")


async def store(dsn: str, *batches: Sequence[Mapping[str, Any]], on_refused: Any = accept) -> None:
    async with await EpisodeSink.open(dsn) as sink:
        for events in batches:
            lines = encode_events([orjson.dumps(event) for event in events])
            await sink.store(lines, {}, topic="t", epoch=1, on_refused=on_refused)


def noted(dsn: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(NOTED).fetchall()


def test_each_run_of_a_batch_once_with_its_first_and_last_time(migrated: str) -> None:
    events = [
        made("a", "1", 5),
        made("a", "2", 7),
        made("a", "1", 1),
        made("b", AWKWARD),
        made("a", "1", 9),
    ]
    asyncio.run(store(migrated, events))
    assert noted(migrated) == [
        ("a", "1", NOW_MS + 1, NOW_MS + 9),
        ("a", "2", NOW_MS + 7, NOW_MS + 7),
        ("b", AWKWARD, NOW_MS, NOW_MS),
    ]


def test_the_way_through_the_stage_notes_them_too(migrated: str) -> None:
    first = made("a", "1")
    asyncio.run(store(migrated, [first], [first, made("a", "2")]))
    assert [row[1] for row in noted(migrated)] == ["1", "1", "2"]


def test_a_batch_without_new_events_notes_nothing(migrated: str) -> None:
    event = made("a", "1")
    asyncio.run(store(migrated, [event], [event]))
    assert len(noted(migrated)) == 1


def test_runs_of_refused_events_are_not_noted(migrated: str) -> None:
    asyncio.run(store(migrated, [made("a", "1"), made("a", "bad", event_type="no such")]))
    assert [row[1] for row in noted(migrated)] == ["1"]


def test_it_is_rolled_back_with_the_events(migrated: str) -> None:
    with pytest.raises(RuntimeError, match="dead letters"):
        asyncio.run(
            store(migrated, [made("a", "1"), made("a", "2", event_type="no such")], on_refused=fail)
        )
    assert noted(migrated) == []


def test_one_line_for_many_events_of_a_run() -> None:
    raws = [orjson.dumps(made("a", f"w{number % 3}", number)) for number in range(1_000)]
    assert len(touched_runs(encode_events(raws))) == 3
