"""Ends a worker with the log that it knows, where the broker keeps its log in memory.

Such a broker that comes back has another log, with offsets that begin again at 0: a worker that
went on would take them for those it has seen. The process that follows reads the new log epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from agents.lane import end_process
from topics.epoch import Epoch, read_epoch

_ASK_S: Final = 30.0
_TIMEOUT_MS: Final = 20_000


class LogLost(RuntimeError):
    """The broker that held the log in memory is gone, or another one is in its place."""

    def __init__(self, kafka: str, epoch: Epoch) -> None:
        super().__init__(
            f"log epoch {epoch.number} ended with the broker at {kafka}, which held it in memory; "
            "the worker has to start anew"
        )


async def end_with_log(kafka: str, epoch: Epoch) -> None:
    """End the process when the one connection that this keeps is lost, or the epoch is another.

    Returns at once where the log outlives its broker's process.
    """
    if epoch.volatile:
        with contextlib.suppress(ConnectionError, LookupError, OSError, KafkaError, TimeoutError):
            await _outlive(kafka, epoch)
        end_process("log", LogLost(kafka, epoch))


async def _outlive(kafka: str, epoch: Epoch) -> None:
    """Return when the connection closes. Raises where it cannot be made, or is not answered."""
    host, _, port = kafka.split(",", maxsplit=1)[0].strip().rpartition(":")
    closed = asyncio.Event()
    connection = await create_conn(
        host.strip("[]"),
        int(port),
        request_timeout_ms=_TIMEOUT_MS,
        max_idle_ms=None,
        on_close=lambda *_: closed.set(),
    )
    try:
        # Read while the connection stands, so this process of the broker is the one that told it.
        if await read_epoch(kafka) != epoch:
            return
        while not closed.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), _ASK_S)
                return
            await connection.send(MetadataRequest([]))  # not to look idle
    finally:
        connection.close()
