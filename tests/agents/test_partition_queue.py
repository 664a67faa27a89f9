"""A lane: one batch after the other, pressure back to the fetch loop, errors end the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import pytest
from faust.types import TP

from agents.consumer import partition_queue as lanes
from agents.consumer.partition_queue import PartitionQueue, queue_bytes_per_partition
from processing.records.batch import RECORD_BYTES, RecordBatch
from tests.patience import until_in_loop

AT = TP("source", 0)
SOON_S = 60.0


def batch(first: int, count: int = 1) -> RecordBatch:
    offsets = list(range(first, first + count))
    nothing: list[bytes | None] = [None] * count
    values: list[bytes | None] = [b"x"] * count
    return RecordBatch("source", 0, first, first + count, offsets, offsets, nothing, values)


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, SOON_S))


def test_order_is_kept_and_steps_never_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MAX_STEP_BYTES", 3 * RECORD_BYTES)

    async def body() -> None:
        seen: list[int] = []
        sizes: list[int] = []
        busy = 0

        async def handle(batches: list[tuple[TP, RecordBatch]]) -> None:
            nonlocal busy
            busy += 1
            assert busy == 1
            await asyncio.sleep(0)
            seen.extend(batch.begin for _tp, batch in batches)
            sizes.append(len(batches))
            busy -= 1

        lane = PartitionQueue("test", handle)
        for number in range(20):
            await lane.put(AT, batch(number))
        await until_in_loop(lambda: len(seen) == 20)
        assert seen == list(range(20))
        assert max(sizes) == 3, "a step holds the event loop no longer than that"
        await lane.close()

    run(body())


def test_a_full_lane_makes_the_fetcher_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MAX_WAITING_BYTES", 10 * RECORD_BYTES)
    monkeypatch.setattr(lanes, "MAX_STEP_BYTES", 5 * RECORD_BYTES)

    async def body() -> None:
        go_on, handled = asyncio.Semaphore(0), []

        async def handle(batches: list[tuple[TP, RecordBatch]]) -> None:
            await go_on.acquire()
            handled.extend(batch.begin for _tp, batch in batches)

        lane = PartitionQueue("test", handle)
        await lane.put(AT, batch(0))
        await until_in_loop(lambda: not lane._waiting)  # the first step holds it
        await lane.put(AT, batch(1, 5))
        await lane.put(AT, batch(6, 5))
        waiting = asyncio.create_task(lane.put(AT, batch(11)))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not waiting.done()
        go_on.release()
        go_on.release()
        await waiting
        go_on.release()
        go_on.release()
        await until_in_loop(lambda: handled == [0, 1, 6, 11])
        await lane.close()

    run(body())


def test_a_partition_that_floods_is_held_and_the_others_take_turns_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "MAX_STEP_BYTES", 5 * RECORD_BYTES)
    other = TP("source", 1)

    async def body() -> None:
        go_on, steps = asyncio.Semaphore(0), []
        held: set[TP] = set()

        async def handle(batches: list[tuple[TP, RecordBatch]]) -> None:
            await go_on.acquire()
            steps.append([(tp, batch.begin) for tp, batch in batches])

        def pause(tp: TP, full: bool) -> None:
            assert (tp in held) != full, "it is notified of changes only"
            (held.add if full else held.discard)(tp)

        lane = PartitionQueue("test", handle, pause=pause, share=10 * RECORD_BYTES)
        for number in range(4):
            await lane.put(AT, batch(5 * number, 5))
        assert held == {AT}
        await lane.put(other, batch(0))
        await lane.put(other, batch(1))
        assert held == {AT}, "a partition with few records is fetched"
        for _ in range(4):
            go_on.release()
        await until_in_loop(lambda: len(steps) == 4)
        assert steps == [[(AT, 0)], [(other, 0), (AT, 5)], [(other, 1), (AT, 10)], [(AT, 15)]]
        assert held == set()
        await lane.close()

    run(body())


def test_close_lets_go_of_what_was_held() -> None:
    async def body() -> None:
        held: set[TP] = set()

        async def handle(_batches: list[tuple[TP, RecordBatch]]) -> None:
            await asyncio.Event().wait()

        def pause(tp: TP, full: bool) -> None:
            (held.add if full else held.discard)(tp)

        lane = PartitionQueue("test", handle, pause=pause, share=2 * RECORD_BYTES)
        for number in range(4):
            await lane.put(AT, batch(number))
        assert held == {AT}
        await lane.close(timeout_s=0.05)
        assert held == set()

    run(body())


def test_room_for_waiting_records_is_shared_within_bounds() -> None:
    shares = [queue_bytes_per_partition(partitions) for partitions in (0, 1, 8, 32, 1_000)]
    assert shares == [8_000_000, 8_000_000, 4_000_000, 1_000_000, 1_000_000]


def test_close_drops_what_waits_and_lets_the_step_in_flight_finish() -> None:
    async def body() -> None:
        go_on, begun, finished = asyncio.Event(), [], []

        async def handle(batches: list[tuple[TP, RecordBatch]]) -> None:
            begun.append(batches[0][1].begin)
            await go_on.wait()
            finished.append(batches[0][1].begin)

        lane = PartitionQueue("test", handle)
        await lane.put(AT, batch(0))
        await until_in_loop(lambda: begun == [0])
        await lane.put(AT, batch(1))
        closing = asyncio.create_task(lane.close())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not closing.done()
        go_on.set()
        await closing
        assert (begun, finished) == ([0], [0])

    run(body())


def test_a_put_that_waited_is_dropped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MAX_WAITING_BYTES", RECORD_BYTES)
    monkeypatch.setattr(lanes, "MAX_STEP_BYTES", RECORD_BYTES)

    async def body() -> None:
        go_on, begun, finished = asyncio.Event(), [], []

        async def handle(batches: list[tuple[TP, RecordBatch]]) -> None:
            begun.append([batch.begin for _tp, batch in batches])
            await go_on.wait()
            await asyncio.sleep(0)
            finished.append([batch.begin for _tp, batch in batches])

        lane = PartitionQueue("test", handle)
        await lane.put(AT, batch(0))
        await until_in_loop(lambda: begun == [[0]])
        await lane.put(AT, batch(1))
        waiting = asyncio.create_task(lane.put(AT, batch(2)))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not waiting.done()
        closing = asyncio.create_task(lane.close())
        await waiting
        go_on.set()
        await closing
        assert begun == finished == [[0]]

    run(body())


def test_close_does_not_wait_for_ever() -> None:
    async def body() -> None:
        begun = asyncio.Event()

        async def handle(_batches: list[tuple[TP, RecordBatch]]) -> None:
            begun.set()
            await asyncio.Event().wait()

        lane = PartitionQueue("test", handle)
        await lane.put(AT, batch(0))
        await begun.wait()
        await lane.close(timeout_s=0.05)
        assert lane._task.cancelled()

    run(body())


def test_a_step_that_waits_for_more_gets_it_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MAX_STEP_BYTES", RECORD_BYTES)

    async def body() -> None:
        steps: list[list[int]] = []

        async def handle(batches: list[tuple[TP, RecordBatch]]) -> float | None:
            steps.append([batch.begin for _tp, batch in batches])
            return 0.02 if batches else None

        lane = PartitionQueue("test", handle)
        await lane.put(AT, batch(0))
        await lane.put(AT, batch(1))
        await until_in_loop(lambda: len(steps) == 2)
        assert not lane.idle, "what was handled is not finished"
        await until_in_loop(lambda: len(steps) == 3)
        assert steps == [[0], [1], []]
        await until_in_loop(lambda: lane.idle)
        await lane.close()

    run(body())


def test_a_step_that_waits_for_more_is_finished_when_the_lane_closes() -> None:
    async def body() -> None:
        steps: list[list[int]] = []

        async def handle(batches: list[tuple[TP, RecordBatch]]) -> float | None:
            await asyncio.sleep(0)
            steps.append([batch.begin for _tp, batch in batches])
            return SOON_S if batches else None

        lane = PartitionQueue("test", handle)
        await lane.put(AT, batch(0))
        await until_in_loop(lambda: steps == [[0]])
        await lane.put(AT, batch(1))
        await lane.close(timeout_s=2.0)  # sooner than more is waited for
        assert steps == [[0], []]

    run(body())


FAILING = """
import asyncio, atexit, sys
from faust.types import TP
from agents.consumer.partition_queue import PartitionQueue
from processing.records.batch import RecordBatch

async def main():
    async def handle(_batches):
        raise {error}
    lane = PartitionQueue("failing", handle)
    await lane.put(TP("source", 0), RecordBatch("source", 0, 0, 1, [0], [0], [None], [None]))
    await asyncio.Event().wait()

atexit.register(print, "cleaned up")
asyncio.run(asyncio.wait_for(main(), 10))
"""


@pytest.mark.parametrize("error", ["RuntimeError('the table is gone')", "SystemExit(0)"])
def test_an_error_ends_the_process_at_once(error: str) -> None:
    program = FAILING.format(error=error)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 70, ended.stderr
    output = ended.stdout + ended.stderr
    assert "cleaned up" not in output, "clean-up could write"
    assert "worker.failed" in output
    assert error.partition("(")[0] in output
    assert "failing" in output
