"""Executors learn together: decisions to the worker, its models to Redis, and back to executors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from redis import Redis

from deploy.system import System
from headstart.keys import model_key
from headstart.prediction.interface import ToolCall
from headstart.shared_learning.shared_learning import SharedLearning
from tests.patience import until

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]


class Headstart(Protocol):
    def __call__(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]: ...


KEY = b"a secret of the tests"
EXECUTOR = """
import sys
from headstart.prediction.interface import ToolCall
from headstart.shared_learning.shared_learning import SharedLearning
kafka, redis, spool, tenant, user = sys.argv[1:]
with SharedLearning(kafka, redis, hash_key=b"a secret of the tests", spool=spool) as shared:
    predictor = shared.predictor("refund", tenant)
    for number in range(20):
        run = predictor.run(user_id=f"{user}-{number}")
        order = f"W{number}{user}"
        run.user(f"refund order {order}")
        run.guess()
        run.calls([ToolCall("find_order", {"order_id": order, "depth": "full"})])
        run.result("find_order", {"total": number})
        run.guess()
        run.calls([])
    shared.flush(60.0)
    print("taught", flush=True)
    sys.stdin.read()  # stays, and gives values that the worker asks for
"""


@pytest.fixture
def shared(system: System, tenant: str, tmp_path: Path) -> Iterator[SharedLearning]:
    """A cold executor."""
    addresses = system.addresses
    with SharedLearning(
        addresses.kafka, addresses.redis, hash_key=KEY, spool=tmp_path / "cold", shipper="thread",
        poll_s=0.2,
    ) as found:  # fmt: skip
        yield found


class Teaching:
    """An executor process that has taught, and stays until it is ended."""

    def __init__(self, system: System, tenant: str, spool: Path, user: str) -> None:
        given = [system.addresses.kafka, system.addresses.redis, str(spool), tenant, user]
        self.process = subprocess.Popen(
            [sys.executable, "-c", EXECUTOR, *given], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, "HEADSTART_SHIPPER": "thread"},
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"taught\n"

    def end(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0


def guessed(shared: SharedLearning, tenant: str) -> ToolCall | None:
    run = shared.predictor("refund", tenant).run(user_id="someone new")
    run.user("refund order W77cold")
    guesses = run.guess(1)
    return ToolCall(guesses[0].tool, guesses[0].arguments) if guesses else None


def test_a_cold_executor_begins_with_what_others_taught(
    system: System, tenant: str, shared: SharedLearning, tmp_path: Path, headstart: Headstart
) -> None:
    supervisor, addresses = system.supervisor, system.addresses
    assert supervisor is not None
    where = ("--tenant", tenant, "--kafka", addresses.kafka, "--redis", addresses.redis)
    executors = [Teaching(system, tenant, tmp_path / "a", "a")]
    before = supervisor.pids["predictions"]
    os.kill(before, signal.SIGKILL)
    executors.append(Teaching(system, tenant, tmp_path / "b", "b"))
    predictor = shared.predictor("refund", tenant)
    until(lambda: predictor.events >= 80, meanwhile=system.check, seen=lambda: predictor.events)
    assert supervisor.pids["predictions"] != before
    wanted = ToolCall("find_order", {"order_id": "W77cold", "depth": "full"})
    until(lambda: guessed(shared, tenant) == wanted, seen=lambda: guessed(shared, tenant))
    for each in executors:
        each.end()

    ended = headstart("predict", "verify", "--json", *where)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (model,) = json.loads(ended.stdout.splitlines()[-1])["models"]
    assert (model["workflow_type"], model["served"], model["ok"]) == ("refund", "equal", True)
    assert model["events"] >= 80
    ended = headstart("predict", "models", "--json", *where)
    (listed,) = json.loads(ended.stdout.splitlines()[-1])["models"]
    assert 0 < listed["bytes"] <= 256_000
    assert listed["offset"] >= model["offset"]

    with Redis.from_url(addresses.redis) as redis:  # a damaged snapshot with a later version
        key = model_key(tenant, "refund")
        whole = redis.hget(key, "snapshot")
        later = f"{listed['epoch'] + 1}:0"  # the worker replaces one of its own epoch
        redis.hset(key, mapping={"snapshot": b"damaged", "version": later})
        ended = headstart("predict", "verify", "--json", *where)
        assert json.loads(ended.stdout.splitlines()[-1])["models"][0]["served"] == "different"
        ended = headstart("predict", "models", "--json", *where)
        assert json.loads(ended.stdout.splitlines()[-1])["models"][0]["ahead"]
        version = f"{listed['epoch']}:{listed['offset']}"
        redis.hset(key, mapping={"snapshot": b"damaged", "version": version})
        ended = headstart("predict", "verify", "--json", *where)
        assert ended.returncode == 1
        assert guessed(shared, tenant) == wanted
        redis.hset(key, mapping={"snapshot": whole, "version": later})  # reset deletes it

    ended = headstart("predict", "reset", "refund", "--dry-run", *where)
    assert ended.returncode == 0, ended.stderr
    ended = headstart("predict", "reset", "refund", "--yes", *where)
    assert ended.returncode == 0, ended.stderr
    until(lambda: guessed(shared, tenant) is None, seen=lambda: guessed(shared, tenant))
    assert headstart("predict", "reset", "nothing", "--yes", *where).returncode == 1
