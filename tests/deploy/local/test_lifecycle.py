"""One stack from start to stop, and the next one on the same data."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from redis import Redis

from deploy.local import Stack, StackError, running
from deploy.process_priority import BACKGROUND
from tests.niceness import check_niceness, foreground
from tests.processes import wait_gone

MakeStack = Callable[..., Stack]


def remember(stack: Stack, value: str) -> None:
    with psycopg.connect(stack.addresses.postgres) as connection:
        connection.execute("CREATE TABLE kept AS SELECT %s::text AS value", [value])
    with Redis.from_url(stack.addresses.redis, decode_responses=True) as redis:
        redis.set("kept", value)


def recall(stack: Stack) -> tuple[object, object]:
    with psycopg.connect(stack.addresses.postgres) as connection:
        row = connection.execute("SELECT value FROM kept").fetchone()
    with Redis.from_url(stack.addresses.redis, decode_responses=True) as redis:
        return row, redis.get("kept")


def test_data_and_addresses_survive_a_restart(make: MakeStack, tmp_path: Path) -> None:
    first = make()
    at = first.start()
    remember(first, "Grüße")
    pids = first.pids
    assert set(pids) == {"broker", "postgres", "redis"}
    assert all(os.getpgid(pid) == pid for pid in pids.values()), "Ctrl-C would reach a child"
    began = time.monotonic()
    first.stop()
    first.stop()
    assert time.monotonic() - began < 60
    wait_gone(pids, 0)
    assert not (tmp_path / "data" / "stack.json").exists()

    with make() as second:
        assert second.addresses == at, "users keep their URLs"
        assert recall(second) == (("Grüße",), "Grüße")


def test_pgvector_and_the_database_are_there(make: MakeStack) -> None:
    with make() as stack, psycopg.connect(stack.addresses.postgres) as connection:
        connection.execute("CREATE EXTENSION vector")
        distance = connection.execute("SELECT '[1,2]'::vector <-> '[1,5]'::vector").fetchone()
        assert distance == (3.0,)
        connection.rollback()
        about = connection.execute(
            "SELECT current_database(), pg_encoding_to_char(encoding), datcollate "
            "FROM pg_database WHERE datname = current_database()"
        ).fetchone()
        assert about == ("headstart", "UTF8", "C")
        assert connection.info.host == "127.0.0.1"


def test_a_dead_child_is_noticed_with_its_log(make: MakeStack, tmp_path: Path) -> None:
    stack = make()
    stack.start()
    stack.check()
    os.kill(stack.pids["redis"], signal.SIGKILL)
    wait_gone({"redis": stack.pids["redis"]})
    with pytest.raises(StackError, match="redis was ended by SIGKILL") as caught:
        stack.check()
    assert str(tmp_path / "data" / "logs" / "redis.log") in str(caught.value)
    assert "Ready to accept connections" in str(caught.value)


def test_a_failed_start_leaves_nothing(make: MakeStack, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "redis").mkdir(parents=True)
    (data / "redis" / "appendonlydir").write_text("in the way")
    stack = make()
    with pytest.raises(StackError, match="redis ended with exit code 1") as caught:
        stack.start()
    assert "appendonlydir" in str(caught.value), "the end of the log is part of the message"
    assert stack.pids == {}
    assert running(data) is None
    (data / "redis" / "appendonlydir").unlink()
    with make() as repaired:
        repaired.check()


def test_only_the_embedded_broker_forgets(make: MakeStack) -> None:
    assert make().forgets
    assert not make(kafka="apache").forgets
    assert not make(kafka="127.0.0.1:9092").forgets


def test_process_priorities(make: MakeStack) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    ahead = foreground()
    with make() as stack:
        for name, pid in stack.pids.items():
            check_niceness(pid, own + (BACKGROUND if name == "postgres" else ahead))
        with psycopg.connect(stack.addresses.postgres) as connection:
            stack.check()
            check_niceness(connection.info.backend_pid, own + BACKGROUND)
