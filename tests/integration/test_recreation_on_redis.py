"""The topics recreated where Redis is a cluster, or named by Sentinels: thresholds go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.support.filled_system import wait_for_workers, working
from deploy.system import System
from headstart import Thresholds
from tests.patience import until
from tests.secured import stack_config

pytestmark = [
    pytest.mark.integration,
    pytest.mark.plain_only(reason="the servers of the test have no TLS"),
]

Event = dict[str, Any]
TYPES = [f"type-{number}" for number in range(6)]
OUTCOMES = 3


@pytest.mark.parametrize("servers", ["mortal_cluster", "sentinels"])
def test_topics_are_recreated(
    servers: str,
    request: pytest.FixtureRequest,
    broker: str,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    headstart: Any,
    tenant: str,
    tmp_path: Path,
) -> None:
    if broker != "apache":
        pytest.skip("the embedded broker's log is not recreated, and others are not ours to change")
    redis = request.getfixturevalue(servers).url
    config = stack_config(data=tmp_path / "own", kafka=broker, redis=redis)

    def run(*words: str | Path) -> Event:
        ended = headstart(*words, "--json", "--data", config.data)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        found: Event = json.loads(ended.stdout.splitlines()[-1])
        return found

    def learn(system: System, expected: int) -> None:
        """Emit outcomes, and wait until executors read their thresholds and sinks have all."""
        with working(system), Thresholds(redis, timeout_s=5.0) as reader:
            events = [judged(tenant, each) for each in TYPES for _ in range(OUTCOMES)]
            run("emit", write_events(events))

            def outcomes() -> set[int]:
                return {reader.get(workflow_type=each, tenant=tenant).outcomes for each in TYPES}

            until(lambda: outcomes() == {expected}, seen=outcomes)
            wait_for_workers(system)
            assert run("verify", "--caught-up")["ok"]

    with System(config, partitions=2, workers=False) as system:
        assert system.epoch is not None
        learn(system, OUTCOMES)
        done = run("topics", "recreate", "--to", tmp_path / "saved", "--yes")
        assert done["epoch"] > system.epoch.number
    with System(config, partitions=2, workers=False) as system:
        assert system.epoch is not None
        assert system.epoch.number == done["epoch"]
        learn(system, 2 * OUTCOMES)
