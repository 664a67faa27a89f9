"""A worker does not outlive the log that it knows, where that is in the broker's memory."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from agents.health import log_epoch_watch as log_life
from agents.health.log_epoch_watch import LogWatch
from topics.epoch import Epoch, read_epoch

pytestmark = pytest.mark.integration


class Ended(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def epoch(log_epoch: Epoch, monkeypatch: pytest.MonkeyPatch) -> Epoch:
    def end(_where: str, error: BaseException) -> None:
        raise Ended from error

    monkeypatch.setattr(log_life, "exit_fatally", end)
    return log_epoch


def test_it_ends_when_the_connection_closes(kafka: str, epoch: Epoch) -> None:
    async def run() -> None:
        watch = LogWatch(kafka, epoch)
        await watch.begin()
        keeping = asyncio.create_task(watch.keep())
        await asyncio.sleep(0)
        assert not keeping.done()
        watch._connection.close()
        with pytest.raises(Ended):
            await keeping

    asyncio.run(run())


def test_a_slow_answer_ends_it_only_where_the_log_is_another_one(
    kafka: str, epoch: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_life, "_ASK_S", 0.01)

    async def run() -> None:
        watch = LogWatch(kafka, epoch)
        await watch.begin()
        watch._connection._request_timeout = 0.0  # no answer is fast enough
        read: list[Epoch] = []

        async def found(_kafka: str) -> Epoch:
            read.append(await read_epoch(kafka) if not read else later)
            return read[-1]

        later = msgspec.structs.replace(epoch, number=epoch.number + 1)
        monkeypatch.setattr(log_life, "read_epoch", found)
        with pytest.raises(Ended):
            await watch.keep()
        assert read == [epoch, later]

    asyncio.run(run())


def test_it_begins_with_no_other_epoch_and_no_broker(kafka: str, epoch: Epoch) -> None:
    later = msgspec.structs.replace(epoch, number=epoch.number + 1)
    for address, known in ((kafka, later), ("127.0.0.1:1", epoch)):
        with pytest.raises(Ended):
            asyncio.run(LogWatch(address, known).begin())


def test_a_worker_that_is_asked_to_stop_only_lets_go(
    kafka: str, epoch: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_life, "_ASK_S", 0.01)  # it sends a request, so as not to look idle

    async def run() -> None:
        watch = LogWatch(kafka, epoch)
        await watch.begin()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watch.keep(), 0.3)
        assert not watch._connection.connected()

    asyncio.run(run())
