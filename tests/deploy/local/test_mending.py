"""A service that dies is started again, on its port and data; one that cannot live is given up."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from redis import Redis

from deploy.local import Stack, StackError, running
from deploy.local import readiness as ready
from deploy.local.service_restart import MOST_ENDS, Failure, Restart
from tests.patience import until

MakeStack = Callable[..., Stack]


def repair(stack: Stack, before: Callable[[str], None] = lambda _name: None) -> Restart | Failure:
    """Look until something was started again, or tried."""
    found = list[Restart | Failure]()
    until(lambda: found.extend(stack.restart_services(before)) or found, pause_s=0.02)
    (restart,) = found
    return restart


def test_each_service_comes_back_where_it_was(make: MakeStack, tmp_path: Path) -> None:
    with make() as stack:
        at, began = stack.addresses, dict(stack.pids)
        with psycopg.connect(at.postgres) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
        with Redis.from_url(at.redis) as redis:
            redis.set("kept", "7")
        assert stack.restart_services() == []
        called: list[str] = []
        for name, pid in began.items():
            os.kill(pid, signal.SIGKILL)
            restart = repair(stack, called.append)
            assert str(restart).startswith(f"{name} was ended by SIGKILL; started again")
            assert stack.down == []
        assert called == list(began)
        assert stack.addresses == at
        assert not set(stack.pids.values()) & set(began.values())
        with psycopg.connect(at.postgres) as connection:
            assert connection.execute("SELECT value FROM kept").fetchone() == (7,)
        with Redis.from_url(at.redis) as redis:
            assert redis.get("kept") == b"7"
        ready.kafka(at.kafka)
        described = running(tmp_path / "data")
        assert described is not None
        assert described.children == stack.pids
        assert described.restarts == dict.fromkeys(began, 1) == stack.restarts


def test_one_that_ends_again_and_again_is_given_up(
    make: MakeStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.local.service_restart._LONGEST_DELAY_S", 0.1)
    with make() as stack:
        files = tmp_path / "data" / "redis" / "appendonlydir"
        os.kill(stack.pids["redis"], signal.SIGKILL)
        for path in files.iterdir():
            path.write_bytes(b"damage")
        for _ in range(MOST_ENDS - 2):
            assert str(repair(stack)).startswith("redis does not start: redis ended with exit code")
        with pytest.raises(StackError, match=f"{MOST_ENDS} times within 300 s") as caught:
            repair(stack)
        assert "AOF" in str(caught.value), "the end of its log is part of the message"
        ready.kafka(stack.addresses.kafka)  # the others are as they were
