"""The stored position of the worker of shared models follows what it has read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from agents.config import WorkerConfig
from agents.predictions.owned_models import StoreTuning
from processing.records.batch import empty_batch
from tests.agents.prediction_world import EPOCH, TP0, Topics, Worker, frames, taught
from tests.patience import until_in_loop
from topics.models.records import MARKER_KEY, decode_marker

LOG = frames(taught("acme"), 2)


def markers(topics: Topics) -> list[int]:
    found = [decode_marker(value) for key, value in topics.models if key == MARKER_KEY]
    return [each.reached for each in found if each is not None]


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(work())


async def skip(worker: Worker, begin: int) -> None:
    """What the consumer does where the log begins later than the stored position."""
    await worker.agent.accept(TP0, 1, empty_batch(*TP0, begin))
    await until_in_loop(lambda: worker.agent.idle() == {TP0: begin})


@pytest.mark.parametrize("volatile", [False, True])
def test_lost_records_are_reported_once_although_nothing_follows_them(
    worker_config: WorkerConfig, volatile: bool
) -> None:
    epoch = msgspec.structs.replace(EPOCH, volatile=volatile)

    async def work() -> None:
        topics = Topics([*LOG])
        worker = Worker(topics, worker_config, epoch)
        await worker.start()
        await worker.feed(3)
        await worker.agent.close()
        topics.begin = len(LOG)  # retention
        worker = Worker(topics, worker_config, epoch)
        assert await worker.start() == 3
        await skip(worker, len(LOG))
        await worker.agent.close()
        assert len(topics.letters) == 1
        worker = Worker(topics, worker_config, epoch)
        assert await worker.start() == len(LOG)
        await skip(worker, len(LOG))
        assert len(topics.letters) == 1
        await worker.kill()

    run(work)


def test_a_marker_follows_what_changes_no_model(
    worker_config: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        topics = Topics([*LOG, *LOG])  # an executor sent all again
        worker = Worker(topics, worker_config)
        monkeypatch.setattr(worker.agent, "_tuning", StoreTuning(marker_s=0.0))
        await worker.start()
        await worker.feed(len(LOG))
        await worker.agent._store_due()
        assert markers(topics) == []  # the states are not due, and a restart begins before them
        await worker.store()
        await worker.feed(len(topics.log))
        await until_in_loop(lambda: markers(topics)[-1] == len(topics.log))
        written = len(markers(topics))
        await worker.agent._store_due()
        assert len(markers(topics)) == written
        await worker.kill()
        again = Worker(topics, worker_config)
        assert await again.start() == len(topics.log)
        await again.kill()

    run(work)


def test_a_worker_that_ends_leaves_a_marker_of_what_it_has_read(
    worker_config: WorkerConfig,
) -> None:
    async def work() -> None:
        topics = Topics([*LOG, *LOG])
        worker = Worker(topics, worker_config)
        await worker.start()
        await worker.feed(len(LOG))
        await worker.store()
        await worker.feed(len(topics.log))
        await worker.agent.close()
        assert markers(topics)[-1] == len(topics.log)

    run(work)
