"""What people set: served at once, kept through losses, and gone when it is taken back."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from deploy.system import System
from headstart.keys import MODES, PUBLISHED, modes_key, redis_key
from tests.patience import until
from topics.commands.log import send_commands
from topics.commands.messages import ModeCommand, ThresholdOverride

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Answer = dict[str, Any]
PATH = "workflow_type=refund/domain=retail"


@pytest.fixture
def config(system: System, headstart: Any) -> Callable[..., Answer]:
    """Run `headstart … --json` against the system; return the one object on stdout."""

    def run(*arguments: str, code: int = 0) -> Answer:
        ended = headstart(*arguments, "--json", "--data", system.data)
        assert ended.returncode == code, ended.stderr
        answer: Answer = json.loads(ended.stdout.splitlines()[-1]) if ended.stdout else {}
        return {**answer, "stderr": ended.stderr}

    return run


def overrides(redis: str, tenant: str) -> list[Answer]:
    with Redis.from_url(redis) as client:
        return list(json.loads(client.hget(redis_key(tenant, "refund"), "!overrides") or "[]"))


def modes(redis: str, key: str) -> dict[bytes, bytes]:
    with Redis.from_url(redis) as client:
        return dict(client.hgetall(key))


def everybody(redis: str) -> dict[bytes, bytes]:
    """Everybody's modes; none before all are there, as readers see it."""
    found = modes(redis, MODES)
    marker = found.pop(PUBLISHED.encode(), b"begun")
    return {} if marker.startswith(b"begun") else {**found, b"all": b"there"}


def test_an_override_from_set_to_unset(
    config: Callable[..., Answer], system: System, tenant: str
) -> None:
    where = ("--workflow-type", "refund", "--domain", "retail", "--tenant", tenant)
    options = ("--speculate", ".97", "--for", "2h", "--reason", "slow", "--by", "ann")
    done = config("config", "set", "threshold", *where, *options, "--tool", "pay")
    assert done["served"] is True
    assert f"nothing is learned yet for the tenant {tenant!r}" in done["stderr"]
    (served,) = overrides(system.addresses.redis, tenant)
    assert served["until"] - time.time() * 1000 > 7_000_000
    assert {name: value for name, value in served.items() if name != "until"} == {
        "path": PATH, "tool": "pay", "speculate": 0.97, "suggest": None, "by": "ann",
        "reason": "slow",
    }  # fmt: skip

    (listed,) = config("config", "list", "--tenant", tenant)["commands"]
    assert (listed["path"], listed["in_force"]) == (PATH, True)
    assert config("config", "get", "threshold", *where, "--tool", "pay")["speculate"] == 0.97
    assert (
        "no override is in force" in config("config", "get", "threshold", *where, code=1)["stderr"]
    )
    shown = config("thresholds", "show", *where, "--user", "u7", "--tool", "pay")
    assert [each["reason"] for each in shown["overrides"]] == ["slow"]
    assert config("thresholds", "show", *where, "--user", "u7")["overrides"] == []
    assert config("thresholds", "list", "--tenant", tenant, code=1)["thresholds"] == []

    config("config", "set", "threshold", *where, "--speculate", ".9")
    unset = config("config", "unset", "threshold", *where, "--tool", "pay")
    assert (unset["served"], unset["applies"]["speculate"]) == (True, 0.9)
    assert config("config", "unset", "threshold", *where)["applies"] is None
    assert overrides(system.addresses.redis, tenant) == []
    again = config("config", "unset", "threshold", *where, "--tool", "pay", code=1)
    assert "nothing is set there" in again["stderr"]


def test_modes(config: Callable[..., Answer], system: System, tenant: str) -> None:
    redis = system.addresses.redis
    config("config", "set", "mode", "observe", "--tenant", tenant)
    config("config", "set", "mode", "act", "--tenant", tenant, "--agent", "planner")
    assert modes(redis, modes_key(tenant)) == {b"*": b"observe", b"agent/planner": b"act"}
    answer = config("config", "get", "mode", "--tenant", tenant, "--agent", "planner")
    assert answer["holds"] == "observe"
    found = answer["modes"]
    assert [(each["agent"], each["mode"]) for each in found] == [
        (None, "observe"),
        ("planner", "act"),
    ]
    config("config", "unset", "mode", "--tenant", tenant)
    assert modes(redis, modes_key(tenant)) == {b"agent/planner": b"act"}
    with Redis.from_url(redis) as client:
        client.hset(modes_key(tenant), "*", "OFF")
    answer = config("config", "get", "mode", "--tenant", tenant)
    assert (answer["holds"], answer["modes"]) == ("off", [])
    assert f"Redis serves 'OFF' for tenant {tenant}, which is not a mode" in answer["stderr"]
    config("config", "set", "mode", "act", "--tenant", tenant)
    assert config("config", "get", "mode", "--tenant", tenant)["holds"] == "act"


def test_without_redis_it_is_recorded_and_a_worker_serves_it(
    config: Callable[..., Answer], system: System, tenant: str
) -> None:
    gone = ("--redis", "redis://127.0.0.1:1/0")
    mode = ("mode", "--tenant", tenant, *gone)
    done = config("config", "set", *mode, "off", code=1)
    assert done["served"] is False
    assert "recorded, but not yet served" in done["stderr"]
    assert "A threshold worker serves it once it runs" in done["stderr"]
    assert "`headstart config get mode --everybody`" in done["stderr"]
    until(lambda: modes(system.addresses.redis, modes_key(tenant)) == {b"*": b"off"})
    done = config("config", "unset", *mode, code=1)
    assert (done["unset"], done["served"]) == (True, False)
    assert "recorded, but not yet served" in done["stderr"]
    until(lambda: modes(system.addresses.redis, modes_key(tenant)) == {})


def test_tables_for_people(headstart: Any, system: System, tenant: str) -> None:
    where = ("--workflow-type", "refund", "--tenant", tenant)
    for arguments in (
        ("config", "set", "threshold", *where, "--suggest", ".5", "--until", "2999-01-01"),
        ("config", "get", "threshold", *where),
        ("config", "list"),
        ("config", "show"),
        ("thresholds", "show", *where),
        ("config", "set", "mode", "act", "--tenant", tenant),
        ("config", "get", "mode", "--tenant", tenant),
    ):
        ended = headstart(*arguments, "--data", system.data)
        assert ended.returncode == 0, ended.stderr
        assert len(ended.stdout.splitlines()) >= 2
        assert "Traceback" not in ended.stderr
    ended = headstart("config", "unset", "threshold", *where, "--data", system.data)
    assert (ended.returncode, ended.stdout) == (0, "")


def test_through_the_loss_of_redis_and_of_the_broker(
    broker: str, launch: Callable[..., Any], headstart: Any, tmp_path: Path, tenant: str
) -> None:
    """On a system of its own: an emptied Redis gets all of it again, a new log goes on with it."""
    if broker != "embedded":
        pytest.skip("only the embedded broker forgets")
    data = tmp_path / "data"

    def up() -> tuple[Any, Answer]:
        running = launch("up", "--data", data, "--kafka", broker, "--partitions", "1", "--json")
        at: Answer = json.loads(running.until('"epoch"').splitlines()[-1])
        return running, at

    def holds(at: Answer) -> bool:
        found = [each["speculate"] for each in overrides(at["redis"], tenant)]
        return found == [0.9] and everybody(at["redis"]) == {b"*": b"off", b"all": b"there"}

    running, at = up()
    override = ThresholdOverride(tenant=tenant, workflow_type="refund", speculate=0.9, at=1)
    asyncio.run(send_commands(at["kafka"], [override, ModeCommand(mode="off", at=1)]))
    until(lambda: holds(at))
    with Redis.from_url(at["redis"]) as client:
        client.flushall()
    until(lambda: holds(at))
    assert running.end(signal.SIGTERM) == 0

    running, at = up()
    assert holds(at)
    ended = headstart("config", "list", "--data", data, "--json")
    commands = json.loads(ended.stdout)["commands"]
    assert [each["set"] for each in commands] == ["mode", "threshold"]
    ended = headstart("config", "unset", "mode", "--everybody", "--data", data)
    assert ended.returncode == 0, ended.stderr
    assert everybody(at["redis"]) == {b"all": b"there"}
    assert running.end(signal.SIGTERM) == 0
