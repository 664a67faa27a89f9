"""What is committed at the end is everything that was done, whatever else is being committed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from faust.types import TP

from agents.consumer.faust_transport import Consumer

PARTITION = TP("headstart.events", 0)


class Slow(Consumer):
    """A consumer whose commits take as long as the test wants; without a broker."""

    def __init__(self) -> None:
        self.app = SimpleNamespace(client_only=False)
        self.loop = asyncio.get_running_loop()
        self._done, self._committable = {}, {}
        self.committed: list[dict[TP, int]] = []
        self.answered = asyncio.Event()

    async def force_commit(self, *_: Any, **__: Any) -> bool:
        self.committed.append(dict(self._committable))
        await self.answered.wait()
        return True


def test_a_commit_under_way_does_not_take_the_place_of_the_last() -> None:
    async def run() -> list[dict[TP, int]]:
        consumer = Slow()
        consumer.done(PARTITION, 7)
        periodic = asyncio.create_task(consumer.commit())
        await asyncio.sleep(0)
        consumer.done(PARTITION, 9)
        last = asyncio.create_task(consumer.commit_and_end_transactions())
        await asyncio.sleep(0)
        consumer.answered.set()
        await asyncio.gather(periodic, last)
        return consumer.committed

    assert asyncio.run(run()) == [{PARTITION: 7}, {PARTITION: 9}]
