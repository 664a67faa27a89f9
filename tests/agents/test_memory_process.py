"""The memory worker as a process that is killed repeatedly: the rows are those of a rebuild."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from memory.store.outbox import fill_outbox
from sinks.connections import connect_postgres
from tests.memory.stored_runs import rows, run, store
from tests.patience import PATIENCE_S, until
from tests.ports import free_port

pytestmark = pytest.mark.integration

RUNS = 1_500
KILLED_AFTER = RUNS // 2
"""Events that are stored before each kill; a run has two late ones."""
VECTORS = """
    SELECT tenant, episode, text_hash, outcome, ended, workflow_type, v::text FROM episode_vectors
    ORDER BY 1, 2
"""


@contextmanager
def worker(dsn: str, folder: Path, health: str = "") -> Any:
    environment = {
        **os.environ,
        "HEADSTART_POSTGRES": dsn,
        "HEADSTART_DATA": str(folder),
        "HEADSTART_HEALTH": health,
    }
    command = [sys.executable, "-P", "-m", "cli", "worker", "memory"]
    process = subprocess.Popen(command, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def waiting(dsn: str) -> int:
    return int(rows(dsn, "SELECT count(*) FROM episode_outbox")[0][0])


def fewer_than(dsn: str, before: int) -> bool:
    return waiting(dsn) < before


def test_kills_lose_and_double_nothing(migrated: str, tmp_path: Path) -> None:
    draw = random.Random(5)
    runs = [run(f"tenant-{n % 7}", f"w{n}", f"query number {n % 50}") for n in range(RUNS)]
    early = [each for one in runs for each in one[:2]]
    late = [each for one in runs for each in one[2:]]
    draw.shuffle(early)
    asyncio.run(store(migrated, early))
    for kill in range(3):
        asyncio.run(store(migrated, late[kill * KILLED_AFTER : (kill + 1) * KILLED_AFTER]))
        before = waiting(migrated)
        with worker(migrated, tmp_path) as process:
            until(partial(fewer_than, migrated, before))
            process.send_signal(signal.SIGKILL)
    asyncio.run(store(migrated, late[3 * KILLED_AFTER :]))
    with worker(migrated, tmp_path) as process:
        until(lambda: waiting(migrated) == 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    found, vectors = rows(migrated), rows(migrated, VECTORS)
    assert (len(found), len(vectors)) == (RUNS, RUNS)
    assert {row[25] for row in found} == {4}

    async def again() -> None:
        async with await connect_postgres(migrated) as connection:
            assert await fill_outbox(connection) == RUNS

    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute("TRUNCATE episodes, episode_vectors")
    asyncio.run(again())
    with worker(migrated, tmp_path):
        until(lambda: waiting(migrated) == 0)
    assert rows(migrated) == found
    assert rows(migrated, VECTORS) == vectors


def test_it_answers_health_checks_and_shows_its_lag(migrated: str, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    asyncio.run(store(migrated, run("a", "1")))

    def asked(path: str) -> bytes:
        try:
            return urllib.request.urlopen(f"http://{address}{path}", timeout=2).read()  # type: ignore[no-any-return]
        except OSError:
            return b""

    with worker(migrated, tmp_path, address):
        until(lambda: b"headstart_rows_total 1.0" in asked("/metrics"))
        expected = {"ok": True, "worker": "memory", "degraded": ""}
        # 503 until it is ready; degraded until the embedding model is loaded.
        until(lambda: expected.items() <= orjson.loads(asked("/readyz") or b"{}").items())
        assert b'headstart_lag_records{partition="0"}' in asked("/metrics")
        assert b'headstart_service_up{service="postgres"} 1.0' in asked("/metrics")
