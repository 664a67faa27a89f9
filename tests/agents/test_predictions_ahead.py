"""States of models that are later than the log: the worker ignores them, and loses nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from agents.config import WorkerConfig
from agents.predictions.model_files import ModelFiles
from headstart.keys import event_key
from tests.agents.prediction_world import EPOCH, Topics, Worker, frames, replayed, taught
from topics.models.records import (
    FORMAT,
    MARKER_KEY,
    NO_RESET,
    StoredModel,
    encode_marker,
    encode_model,
)
from topics.models.resets import RESET

TENANTS = ("acme", "blue")
EVENTS = [event for some in zip(*map(taught, TENANTS), strict=True) for event in some]
LOG = frames(EVENTS, 2)
KEY = event_key("acme", "refund")
AHEAD = [
    (EPOCH.number, len(LOG)), (EPOCH.number, 2**62), (EPOCH.number, 2**63 - 1),
    (EPOCH.number + 1, 0), (9_999_999_999, 5),
]  # fmt: skip


def forged(version: tuple[int, int]) -> bytes:
    return encode_model(*version, NO_RESET, replayed(LOG[:3], "acme").to_bytes())


def expect_exact(worker: Worker) -> None:
    for tenant in TENANTS:
        assert worker.state(tenant) == replayed(worker.topics.log, tenant).to_bytes()


@pytest.mark.parametrize("version", AHEAD)
@pytest.mark.parametrize("compacted", [False, True])
def test_a_state_later_than_the_log_is_ignored(
    worker_config: WorkerConfig, version: tuple[int, int], compacted: bool
) -> None:
    async def work() -> None:
        topics = Topics([*LOG])
        first = Worker(topics, worker_config)
        await first.start()
        await first.feed(len(LOG) - 2)
        await first.store()
        await first.kill()
        topics.models.append((KEY, forged(version)))
        topics.compacted = len(topics.models) if compacted else 0
        for path in worker_config.data.glob("models/0/*.model"):
            path.unlink()
        worker = Worker(topics, worker_config)
        with capture_logs() as logged:
            await worker.start()
        (warned,) = [each for each in logged if each["event"] == "model.ahead"]
        assert (warned["tenant"], warned["version"]) == ("acme", "{}:{}".format(*version))
        assert warned["restored"] is not compacted
        files = ModelFiles(worker_config.data).heads(0).values()
        assert all(each.version < (EPOCH.number, len(LOG)) for each in files)
        await worker.feed(len(LOG))
        expect_exact(worker)
        await worker.store()
        assert topics.stored("acme").version == (EPOCH.number, len(LOG) - 1)
        await worker.kill()

    asyncio.run(work())


def test_several_odd_records_end_no_worker(worker_config: WorkerConfig) -> None:
    async def work() -> None:
        topics = Topics([*LOG])
        marker = encode_marker(EPOCH.number, 2**62, {KEY: 2**62})
        odd: list[Any] = [
            *[(KEY, forged(version)) for version in AHEAD],
            *[(key, forged((EPOCH.number, 0))) for key in (None, b"", b"no tenant", b"\xff\x1fa")],
            (event_key("blue", "refund"), forged(AHEAD[-1])), (KEY, b"?"), (KEY, None),
            (MARKER_KEY, marker),
        ]  # fmt: skip
        topics.models += odd
        worker = Worker(topics, worker_config)
        assert await worker.start() == 0
        await worker.feed(len(LOG))
        expect_exact(worker)
        await worker.kill()

    asyncio.run(work())


def test_a_file_later_than_the_log_is_ignored(worker_config: WorkerConfig) -> None:
    async def work() -> None:
        topics = Topics([*LOG])
        files = ModelFiles(worker_config.data)
        files.write(0, KEY, StoredModel(FORMAT, EPOCH.number + 1, 0, NO_RESET, b""))
        worker = Worker(topics, worker_config)
        await worker.start()
        await worker.feed(len(LOG))
        expect_exact(worker)
        await worker.kill()

    asyncio.run(work())


def test_a_reset_replaces_a_state_that_is_later_than_the_log(worker_config: WorkerConfig) -> None:
    """It is written at once, also where the log has nothing else of the model."""

    async def work() -> None:
        reset = {"event_type": RESET, "tenant": "acme", "workflow_type": "refund"}
        topics = Topics([], [(KEY, forged(AHEAD[1]))])
        worker = Worker(topics, worker_config)
        await worker.start()
        topics.log.append(orjson.dumps(reset))
        await worker.feed(1)
        await worker.agent._store_due()
        assert topics.stored("acme").version == (EPOCH.number, 0)
        assert topics.stored("acme").state == b""
        await worker.kill()

    asyncio.run(work())
