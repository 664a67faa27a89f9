"""The serving of snapshots, next to a thread that applies records."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from agents.config import WorkerConfig
from agents.health.metrics import WorkerCounts
from agents.predictions.serving import SnapshotServing
from headstart.keys import event_key
from headstart.prediction.shared.fleet_model import FleetModel
from processing.predictions.entries import ModelEntry
from tests.agents.prediction_world import Topics, Worker, frames, taught


class Publisher:
    """Redis, which has lost its data."""

    def __init__(self) -> None:
        self.published: list[str] = []
        self.version: tuple[int, int] | None = None
        self.wrong: object = None

    async def publish(self, tenant: str, *_rest: object, wrong: object = None) -> bool:
        self.published.append(tenant)
        self.wrong = wrong
        return True

    async def versions(self, keys: list[tuple[str, str]]) -> list[Any]:
        return [self.version for _ in keys]


def _serving(publisher: Any, owned: Any) -> SnapshotServing:
    return SnapshotServing(
        publisher, lambda: [owned], 7, WorkerCounts(), time.monotonic, _nothing, _ends
    )


async def _nothing() -> None: ...


async def _ends() -> dict[int, int]:
    return {0: 5}


def _entries(count: int) -> dict[bytes, ModelEntry]:
    keys = [event_key(f"t{number}", "refund") for number in range(count)]
    return {key: ModelEntry(key, 0, 3) for key in keys}


def test_models_are_listed_while_none_is_added() -> None:
    async def work() -> None:
        lock = asyncio.Lock()
        entries = _entries(2)

        class Locked:
            """Entries that are only listed under the lock."""

            def __iter__(self) -> Any:
                assert lock.locked()
                return iter(entries)

            def values(self) -> Any:
                assert lock.locked()
                return entries.values()

        models = SimpleNamespace(entries=Locked(), model=lambda _entry: FleetModel())
        publisher = Publisher()
        serving = _serving(publisher, SimpleNamespace(models=models))
        while len(publisher.published) < len(entries):
            await serving.work(lock)
        assert sorted(publisher.published) == ["t0", "t1"]

    asyncio.run(work())


@pytest.mark.parametrize(
    ("version", "replaced"), [((7, 3), None), ((7, 4), None), ((7, 5), (7, 5)), ((8, 0), None)]
)
def test_a_version_that_the_log_does_not_have_is_replaced(
    version: tuple[int, int], replaced: object
) -> None:
    """Otherwise no snapshot of the worker is ever newer."""

    async def work() -> None:
        publisher = Publisher()
        publisher.version = version
        models = SimpleNamespace(entries=_entries(1), model=lambda _entry: FleetModel())
        owned = SimpleNamespace(models=models, tp=SimpleNamespace(partition=0))
        await _serving(publisher, owned).work(asyncio.Lock())
        assert publisher.published == (["t0"] if replaced else [])
        assert publisher.wrong == replaced

    asyncio.run(work())


def test_a_version_of_a_later_epoch_delays_no_reset() -> None:
    """It is published as soon as the model changes: the command has deleted the version."""

    async def work() -> None:
        publisher, entries = Publisher(), _entries(1)
        publisher.version = (8, 0)
        models = SimpleNamespace(entries=entries, model=lambda _entry: FleetModel())
        owned = SimpleNamespace(models=models, tp=SimpleNamespace(partition=0))
        serving, lock = _serving(publisher, owned), asyncio.Lock()
        await serving.work(lock)
        assert not publisher.published
        for entry in entries.values():
            entry.offset += 1
        await serving.work(lock)
        assert publisher.published == ["t0"]

    asyncio.run(work())


def test_serving_keeps_no_more_models_in_memory_than_learning(
    worker_config: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants = ("acme", "blue", "coral")

    async def work() -> None:
        topics = Topics(frames([event for tenant in tenants for event in taught(tenant)], 2))
        first = Worker(topics, worker_config)
        await first.start()
        await first.feed(len(topics.log))
        await first.agent.close()
        again = Worker(topics, worker_config)
        again.agent._loaded._most = 1
        await again.start()  # nothing is in memory, and there is nothing to apply
        publisher: Any = Publisher()
        serving, lock = again.agent._serving, again.agent._lock
        monkeypatch.setattr(serving, "_publisher", publisher)
        while len(publisher.published) < len(tenants):
            await serving.work(lock)
            await asyncio.sleep(0.001)
        (owned,) = again.agent._owned.values()
        assert sum(each.model is not None for each in owned.models.entries.values()) == 1
        await again.kill()

    asyncio.run(work())
