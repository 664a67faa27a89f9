"""What Postgres does with our statements: days that cannot hold the answer are not looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import orjson
import psycopg
import pytest

from headstart.events.schema import new_id
from sinks.connections import connect_postgres
from sinks.postgres.episodes import EpisodeSink, encode_event
from sinks.postgres.partitions import ensure_partitions, partition_name
from sinks.postgres.statements import load_statements
from tests.sinks.dated_events import event

pytestmark = pytest.mark.integration

TODAY = date(2025, 6, 15)
DAYS = 6
NOON_MS = int(datetime(2025, 6, 15, 12, tzinfo=UTC).timestamp() * 1000)
DAY_MS = 86_400_000


@pytest.fixture
def days(migrated: str) -> str:
    """A database with a partition for each of six days, two events in each."""

    async def fill() -> None:
        async with await connect_postgres(migrated) as connection:
            await ensure_partitions(connection, TODAY, DAYS - 1, 0)
        events = [event(NOON_MS - day * DAY_MS) for day in range(DAYS) for _ in range(2)]
        async with await EpisodeSink.open(migrated) as sink:
            lines = [encode_event(orjson.dumps(each)) for each in events]
            offsets: dict[int, int] = {}
            stored = await sink.store(
                lines,
                offsets,
                topic="t",
                epoch=1,
                on_refused=None,  # type: ignore[arg-type]
            )
            assert stored == len(events)

    asyncio.run(fill())
    return migrated


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def plan_of(dsn: str, statement: bytes, values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The parts of the plan that ran."""
    with psycopg.connect(dsn) as connection:
        # These tables are tiny; large ones are not read from end to end.
        connection.execute("SET enable_seqscan = off")
        explained = b"EXPLAIN (ANALYZE, FORMAT JSON) " + statement
        row = connection.execute(explained, values).fetchone()
        assert row is not None
        return [node for node in nodes(row[0][0]["Plan"]) if node["Actual Loops"]]


def touched(plan: list[Mapping[str, Any]]) -> set[str]:
    return {
        name for node in plan if (name := node.get("Relation Name", "")).startswith("episodic_")
    }


def test_a_range_reads_its_days_only(days: str) -> None:
    values = {
        "since": NOON_MS - 2 * DAY_MS,
        "until": NOON_MS - DAY_MS,
        "tenant": None,
        "workflow_type": None,
    }
    plan = plan_of(days, load_statements("archive")["archived"], values)
    expected = {partition_name(TODAY - timedelta(days=back)) for back in (1, 2)}
    assert touched(plan) == expected


def test_a_stored_event_is_looked_up_by_its_day(days: str) -> None:
    values = {
        "ids": new_id(), "tenants": "t", "timestamps": str(NOON_MS - 3 * DAY_MS),
        "workflow_ids": '["w1"]',
    }  # fmt: skip
    plan = plan_of(days, load_statements("queries")["not_stored"], values)
    assert touched(plan) <= {partition_name(TODAY - timedelta(days=3))}


def test_the_story_of_a_workflow_comes_from_its_index(days: str) -> None:
    """It asks every day, because the query has no time: one probe of an index each."""
    values = {"tenant": "t", "workflow_id": "w1", "limit": 100}
    plan = plan_of(days, load_statements("queries")["events_of_workflow"], values)
    scans = [node for node in plan if "Relation Name" in node or "Index Name" in node]
    assert {node["Node Type"] for node in scans} <= {
        "Index Scan",
        "Bitmap Heap Scan",
        "Bitmap Index Scan",
    }
    names = {node["Index Name"] for node in scans if "Index Name" in node}
    own = {name for name in names if not name.startswith("episodes_")}
    assert own
    assert all("workflow_id" in name for name in own)
    assert len(touched(plan)) == DAYS + 1


def test_the_newest_of_a_rare_kind_comes_in_the_order_of_its_index(days: str) -> None:
    statement = (
        b"SELECT id FROM episodic_events WHERE event_type = %(type)s AND timestamp >= %(since)s"
        b" ORDER BY timestamp DESC LIMIT 1"
    )
    since = datetime(2025, 6, 15, tzinfo=UTC)
    plan = plan_of(days, statement, {"type": "user_feedback", "since": since})
    assert touched(plan) <= {partition_name(TODAY), "episodic_events_default"}
    assert "Sort" not in {node["Node Type"] for node in plan}
    assert all("event_type" in node["Index Name"] for node in plan if "Index Name" in node)


def test_how_often_a_tool_succeeded_is_read_from_its_index_alone(days: str) -> None:
    statement = (
        b"SELECT count(*) FILTER (WHERE success) FROM episodic_events WHERE tool_id = %(tool)s"
        b" AND timestamp >= %(since)s"
    )
    since = datetime(2025, 6, 15, tzinfo=UTC)
    plan = plan_of(days, statement, {"tool": "search", "since": since})
    scans = {node["Node Type"] for node in plan if "Relation Name" in node}
    assert scans == {"Index Only Scan"}
    assert touched(plan) <= {partition_name(TODAY), "episodic_events_default"}
