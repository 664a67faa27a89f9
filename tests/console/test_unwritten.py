"""Nothing is compared, or deleted, if the log does not have what was learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from console.inspection.target import InspectionTarget
from headstart.keys import redis_key
from processing.partition_count import write_count
from tests.console.conftest import PARTITIONS


@pytest.mark.parametrize(
    "command", [("thresholds", "republish"), ("thresholds", "republish", "--dry-run"), ("verify",)]
)
def test_an_empty_changelog_deletes_nothing_from_redis(
    run: Any, target: InspectionTarget, served: None, command: tuple[str, ...]
) -> None:
    """As while the threshold worker does not start in a new log."""
    where = ("--kafka", target.kafka, "--redis", target.redis)
    if command == ("verify",):
        where += ("--postgres", target.postgres)
    ended = run(*command, *where)
    assert ended.returncode == 1
    assert "the changelog has no rows in log epoch" in ended.stderr
    assert "headstart status" in ended.stderr
    assert "republish" not in ended.stderr
    with Redis.from_url(target.redis) as redis:
        assert redis.hexists(redis_key("tenänt", "refünd"), "workflow_type=refünd")


@pytest.mark.parametrize("command", [("thresholds", "republish"), ("verify",)])
def test_a_directory_of_another_partition_count_is_not_compared(
    run: Any, target: InspectionTarget, served: None, command: tuple[str, ...], tmp_path: Path
) -> None:
    worker = tmp_path / "data/workers/thresholds-0"
    worker.mkdir(parents=True)
    write_count(worker, 8)
    environment = {
        "HEADSTART_KAFKA": target.kafka,
        "HEADSTART_POSTGRES": target.postgres,
        "HEADSTART_REDIS": target.redis,
    }
    ended = run(*command, "--data", str(tmp_path / "data"), **environment)
    assert ended.returncode == 1
    assert f"has {PARTITIONS} partitions" in ended.stderr
    assert "is of 8" in ended.stderr
    assert "Nothing was changed" in ended.stderr
    with Redis.from_url(target.redis) as redis:
        assert redis.hexists(redis_key("tenänt", "refünd"), "workflow_type=refünd")


def test_topics_are_only_listed_without_yes(run: Any, target: InspectionTarget) -> None:
    """Commands and dead letters are of no one log, and stay."""
    ended = run("topics", "delete", "--kafka", target.kafka, "--json")
    assert ended.returncode == 0, ended.stderr
    output = json.loads(ended.stdout)
    assert output["deleted"] == []
    assert set(output["found"]) == {
        "headstart.events", "headstart.thresholds", "headstart.notices", "headstart.epochs",
        "headstart.decisions", "headstart.models", "headstart-thresholds-contexts-changelog",
    }  # fmt: skip
    assert json.loads(run("topics", "list", "--kafka", target.kafka, "--json").stdout)["topics"]
