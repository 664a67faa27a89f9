"""A stack of this suite's own: what is planted there must not reach other tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from console.inspection.target import InspectionTarget
from deploy.local import Addresses, Stack, StackConfig
from deploy.system import prepare
from headstart.keys import redis_key
from tests.processes import Ended, run_command

PARTITIONS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ailing")


@pytest.fixture(scope="module")
def at(folder: Path) -> Iterator[Addresses]:
    """Services with topics and schema, without workers."""
    with Stack(StackConfig(data=folder)) as stack:
        asyncio.run(prepare(stack.addresses, PARTITIONS))
        yield stack.addresses


@pytest.fixture
def target(at: Addresses, folder: Path) -> InspectionTarget:
    return InspectionTarget(at.kafka, at.postgres, at.redis, folder)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ended]:
    """Run a command in an empty directory, to its end."""

    def command(*arguments: str, **environment: str) -> Ended:
        return run_command(*arguments, folder=tmp_path, environment=environment)

    return command


@pytest.fixture
def served(target: InspectionTarget) -> Iterator[None]:
    """A context whose name is not ASCII is served."""
    key = redis_key("tenänt", "refünd")
    value = {"speculate": 0.8, "suggest": 0.5, "epoch": 1, "offset": 1, "outcomes": 7,
             "learner": "hops", "at": 1,
             "counts": [1, 0, 0, 0, 6, 4, 0, 0, 0, 1000, 9000]}  # fmt: skip
    with Redis.from_url(target.redis) as redis:
        redis.hset(key, "workflow_type=refünd", json.dumps(value))
        yield
        redis.delete(key)
