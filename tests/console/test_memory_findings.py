"""What doctor and the screens say of the memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from console.inspection.doctor.findings import OK, WARNING, Finding
from console.inspection.doctor.memory import check_memory
from console.inspection.doctor.workers import check_workers
from console.inspection.snapshot import MEMORY_GROUP, SystemObserver
from console.inspection.target import InspectionTarget
from console.inspection.text_view import plain_line
from console.inspection.trends import Trends
from console.inspection.workers import Worker
from processing.worker_report import Report


def found_in(postgres: str) -> list[Finding]:
    """The findings without those of keys, which are there in any case."""
    return [each for each in asyncio.run(check_memory(postgres)) if each.check == "memory"]


@pytest.fixture
def late(migrated: str) -> str:
    with psycopg.connect(migrated) as connection:
        connection.execute(
            "INSERT INTO episode_outbox VALUES ('a', '1', now(), now(), now() - interval '1 hour')"
        )
    return migrated


@pytest.mark.integration
def test_doctor_finds_a_worker_that_falls_behind(migrated: str) -> None:
    assert [each.level for each in found_in(migrated)] == [OK]


@pytest.mark.integration
def test_doctor_finds_old_rows_in_the_outbox(late: str) -> None:
    (found,) = found_in(late)
    assert (found.level, found.check) == (WARNING, "memory")
    assert "1 rows wait in the outbox, the oldest for 3,60" in found.what
    assert "headstart worker memory" in found.remedy


@pytest.mark.integration
def test_doctor_finds_that_there_is_no_table_of_vectors(migrated: str) -> None:
    with psycopg.connect(migrated) as connection:
        connection.execute("DROP TABLE episode_vectors")
    found = found_in(migrated)
    assert [each.level for each in found] == [OK, WARNING]
    assert "headstart migrate" in found[1].remedy


def test_no_postgres_is_no_finding_of_the_memory(closed: str) -> None:
    assert asyncio.run(check_memory(f"postgresql://{closed}/x?connect_timeout=1")) == []


@pytest.mark.integration
def test_a_snapshot_has_the_lag(late: str, tmp_path: Path, closed: str) -> None:
    target = InspectionTarget(closed, late, f"redis://{closed}/0", tmp_path)
    look = asyncio.run(SystemObserver(target, contexts=False).take())
    assert look.memory is not None
    assert (look.memory.rows, look.memory.oldest_s > 3_500) == (1, True)
    trends = Trends()
    trends.add(look)
    assert "memory 1 runs wait, the oldest for 60 m" in plain_line(trends)
    assert MEMORY_GROUP == "headstart-memory"


def test_a_degraded_worker_is_a_warning(tmp_path: Path) -> None:
    report = Report(worker="memory", pid=1, at=1, ready=True, degraded="no pgvector")
    worker = Worker("memory", "0", 1, running=True, report=report)
    levels = [(each.check, each.level) for each in check_workers([worker], tmp_path)]
    assert levels == [("workers", OK), ("memory", WARNING)]
