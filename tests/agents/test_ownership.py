"""One partition under one assignment, as others see it while it is taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from agents import pacing
from agents.ownership import Ownership
from processing.merging import LEAST
from processing.partition import Partition
from processing.rules import Rules
from tests.processing.building import EPOCH, NOW, TD, Table, judged, run

TYPES = ("answer", "plan", "refund")


class Store:
    """A table of one partition, which may be replaced."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def held_offset(self, _partition: int) -> None:
        return None

    def scan(self, _partition: int) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(self.table.items()))


def runtime(store: Store) -> Any:
    """Return as much of a runtime as taking a partition up needs."""
    return SimpleNamespace(
        app=SimpleNamespace(consumer_generation_id=1, consumer=SimpleNamespace(hold=None)),
        store=store,
        share=1,
        policy=TD,
        new_core=lambda place: Partition(place, 1, EPOCH, Rules(TD), store.table.get),
    )


def test_what_is_known_never_follows_from_half_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one place in the log there is one evidence: a second one would not count."""
    monkeypatch.setattr(pacing, "AT_ONCE", 2)
    before, _ = run(judged())
    after, _ = run(*(judged(workflow_type=each) for _ in range(LEAST) for each in TYPES))

    async def body() -> None:
        store = Store(before)
        owned = Ownership(TP("t", 0), runtime(store), 0)
        await owned.restore()
        store.table = after
        restored = asyncio.create_task(owned.restore())
        said = []
        while not restored.done():
            said += owned.types.due(NOW)
            await asyncio.sleep(0)
        await restored
        said += owned.types.due(NOW)
        assert [[known.path for known in each.known] for each in said if each.known] == [
            [f"workflow_type={each}" for each in TYPES]
        ]
        assert owned.core.watermark == len(TYPES) * LEAST - 1
        await owned.lane.close()

    asyncio.run(asyncio.wait_for(body(), 60.0))
