"""`headstart status`: the verdict, the exit code, and waiting until all is well."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection
from redis import Redis

from console.inspection.snapshot import SystemObserver
from console.inspection.target import InspectionTarget
from headstart.keys import redis_key
from processing.state.clock import STEP_MS, TICK_MS


@pytest.fixture
def where(target: InspectionTarget) -> tuple[str, ...]:
    return ("--kafka", target.kafka, "--postgres", target.postgres, "--redis", target.redis)


def test_services_without_workers(run: Any, where: Any) -> None:
    ended = run("status", *where)
    assert (ended.returncode, ended.stderr) == (1, "")
    first, *rows = ended.stdout.splitlines()
    missing = ("episodes", "thresholds", "history", "predictions")
    assert first == f"UNHEALTHY  {'; '.join(f'no worker {name}' for name in missing)}"
    assert [row.split()[0] for row in rows[1:4]] == ["kafka", "postgres", "redis"]
    ended = run("status", "--no-workers", "--json", *where)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    assert (found["healthy"], found["reasons"]) == (True, [])
    expected = {f"headstart-{name}": {"0": 0, "1": 0, "2": 0} for name in missing}
    assert found["lag"] == expected | {"headstart-memory": {"0": 0}}
    assert found["memory"] == {"rows": 0, "oldest_s": 0}


@pytest.mark.parametrize("contexts", [False, True])
def test_a_snapshot_opens_one_connection_to_postgres(
    target: InspectionTarget, served: None, monkeypatch: pytest.MonkeyPatch, *, contexts: bool
) -> None:
    opened, connect = [], AsyncConnection.connect

    async def counted(dsn: str, **more: Any) -> Any:
        opened.append(await connect(dsn, **more))
        return opened[-1]

    monkeypatch.setattr(AsyncConnection, "connect", counted)
    observer = SystemObserver(target, contexts=contexts)
    look = asyncio.run(observer.take())
    assert look.answered, look.services
    assert look.stored is not None
    assert (look.learned is not None) is contexts
    assert [each.closed for each in opened] == [True]


def test_exit_when_ready(run: Any, where: Any, closed: str) -> None:
    ended = run("status", "--exit-when-ready", "--no-workers", *where)
    assert ended.returncode == 0
    assert ended.stdout.startswith("HEALTHY")
    late = ("--exit-when-ready", "--timeout", "10", "--every", "0.2")
    ended = run("status", *late, "--no-workers", *where, "--kafka", closed)
    assert ended.returncode == 1
    assert ended.stdout.startswith("UNHEALTHY  Kafka: nothing listens there")
    assert ended.stderr.splitlines()[0] == "UNHEALTHY  Kafka: nothing listens there"


def test_names_are_escaped_on_an_ascii_stream(run: Any, where: Any, served: None) -> None:
    redis = where[-2:]
    for arguments in (("contexts",), ("thresholds", "list"), ("top", "--looks", "1", *where)):
        ended = run(*arguments, *redis, PYTHONIOENCODING="ascii")
        assert ended.returncode == 0, ended.stderr
    ended = run("contexts", "--json", *redis, PYTHONIOENCODING="ascii")
    assert json.loads(ended.stdout)["contexts"][0]["workflow_type"] == "refünd"


@pytest.mark.parametrize("wrong", [("--timeout", "3"), ("--every", "0"), ("--health", "8080")])
def test_invalid_options(run: Any, wrong: tuple[str, ...], tmp_path: Path) -> None:
    ended = run("status", *wrong)
    assert ended.returncode in {1, 2}
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", [("contexts",), ("thresholds", "list")], ids=" ".join)
def test_since_keeps_every_context_of_its_window(
    run: Any, target: InspectionTarget, command: tuple[str, ...]
) -> None:
    """Their times are held within ticks of five minutes, of a clock that may be behind."""
    value = {"speculate": 0.8, "suggest": 0.5, "epoch": 1, "offset": 1, "outcomes": 7,
             "learner": "hops", "counts": [1, 0, 0, 0, 6, 4, 0, 0, 0, 1000, 9000]}  # fmt: skip
    tick = time.time_ns() // 1_000_000 // TICK_MS * TICK_MS
    old = tick - 6 * TICK_MS
    held = {"now": tick, "held": tick - 4 * TICK_MS - 1, "old": old, "older": old - STEP_MS - 1}
    key = redis_key("of-ticks", "refund")
    with Redis.from_url(target.redis) as redis:
        for name, at in held.items():
            redis.hset(key, f"workflow_type=refund|domain={name}", json.dumps({**value, "at": at}))
        try:
            ended = run(*command, "--since", "20m", "--tenant", "of-ticks", "--json", "--redis",
                        target.redis)  # fmt: skip
        finally:
            redis.delete(key)
    assert ended.returncode == 0, ended.stderr
    (found,) = (each for name, each in json.loads(ended.stdout).items() if name == command[0])
    assert {each["path"].rpartition("=")[2] for each in found} == {"now", "held"}


def test_a_directory_without_workers(run: Any, tmp_path: Path) -> None:
    """Not the default addresses one by one: the directory never used them."""
    ended = run("status", "--data", str(tmp_path / "away"))
    assert ended.returncode == 1
    first = ended.stdout.splitlines()[0]
    assert first.startswith(f"UNHEALTHY  no `headstart up` runs on {tmp_path / 'away'}")
    assert "listens" not in first
