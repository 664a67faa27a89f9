"""Ends a worker when its log is lost, where the broker keeps the log in memory.

After a restart such a broker has another log, with offsets that begin again at 0; a worker that
continued would mistake them for those it has seen. The next process reads the new log epoch.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from agents.fatal import exit_fatally
from headstart.connections.kafka_connections import open_connection
from topics.epoch import Epoch, read_epoch

_ASK_S: Final = 30.0
_TIMEOUT_MS: Final = 20_000
_AWAY: Final = (ConnectionError, LookupError, RuntimeError, OSError, KafkaError)


class LogLost(RuntimeError):
    """The broker that held the log in memory is gone, or another one is in its place."""

    def __init__(self, kafka: str, epoch: Epoch) -> None:
        super().__init__(
            f"log epoch {epoch.number} ended with the broker at {kafka}, which held it in memory; "
            "the worker has to be restarted"
        )


class LogWatch:
    """Watches one connection to the broker, which lasts as long as the broker's process."""

    def __init__(self, kafka: str, epoch: Epoch) -> None:
        self._kafka, self._epoch = kafka, epoch
        self._closed = asyncio.Event()
        self._connection: Any = None

    async def begin(self) -> None:
        """Connect, before anything is consumed; end the process if the epoch has changed."""
        host, _, port = self._kafka.split(",", maxsplit=1)[0].strip().rpartition(":")
        try:
            self._connection = await open_connection(
                host.strip("[]"),
                int(port),
                request_timeout_ms=_TIMEOUT_MS,
                max_idle_ms=None,
                on_close=lambda *_: self._closed.set(),
            )
        except _AWAY:
            same = False
        else:  # read while the connection is open, so the epoch is that of the broker behind it
            same = await self._is_same()
        if not same:
            await self._close()
            self._end()

    async def keep(self) -> None:
        """End the process when the connection closes, or leads to another log."""
        try:
            while not await self._closes() and await self._log_exists():
                pass
            self._end()
        finally:
            await self._close()

    async def _log_exists(self) -> bool:
        """Send a request, so as not to look idle; return whether the log still exists."""
        try:
            await self._connection.send(MetadataRequest([]))
        except TimeoutError:  # slow is not gone: the connection is open
            return await self._is_same()
        except _AWAY:
            return False
        return True

    async def _is_same(self) -> bool:
        try:
            return await read_epoch(self._kafka) == self._epoch
        except _AWAY:
            return False

    async def _closes(self) -> bool:
        try:
            await asyncio.wait_for(self._closed.wait(), _ASK_S)
        except TimeoutError:
            return False
        return True

    async def _close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def _end(self) -> None:
        exit_fatally("log", LogLost(self._kafka, self._epoch))
