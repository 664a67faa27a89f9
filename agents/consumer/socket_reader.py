"""Reads the responses of a broker with one copy.

`asyncio.StreamReader` appends each quarter of a megabyte to one buffer, which moves as it grows,
and pauses the transport whenever that holds more than 128 kB: for fetches of megabytes this took a
quarter of a threshold worker's time. Here chunks are kept and joined once a response is complete.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka.conn


class ChunkedStreamReader(asyncio.StreamReader):
    """A stream that is only read by `readexactly`, as aiokafka does.

    It never pauses the transport: a broker sends only what was requested.
    """

    def reset(self) -> None:
        """Start empty."""
        self._chunks = list[bytes | memoryview]()
        self._waiting = 0
        """Bytes in all chunks."""

    def feed_data(self, data: Any) -> None:
        """Append received data."""
        if data:
            self._chunks.append(bytes(data))
            self._waiting += len(data)
            self._wakeup_waiter()  # type: ignore[attr-defined]

    async def readexactly(self, n: int) -> bytes:
        """Return `n` bytes. Raises `IncompleteReadError` where the stream ends before."""
        while self._waiting < n:
            if (error := self.exception()) is not None:
                raise error
            if self._eof:  # type: ignore[attr-defined]
                raise asyncio.IncompleteReadError(self._take(self._waiting), n)
            await self._wait_for_data("readexactly")  # type: ignore[attr-defined]
        return self._take(n)

    def _take(self, n: int) -> bytes:
        taken, rest = list[bytes | memoryview](), n
        for chunk in self._chunks:
            if rest < len(chunk):
                break
            taken.append(chunk)
            rest -= len(chunk)
        del self._chunks[: len(taken)]
        if rest:
            chunk = memoryview(self._chunks[0])
            taken.append(chunk[:rest])
            self._chunks[0] = chunk[rest:]
        self._waiting -= n
        return b"".join(taken)


class _Protocol(aiokafka.conn.AIOKafkaProtocol):  # type: ignore[misc]
    def __init__(self, closed: Any, reader: asyncio.StreamReader, **more: Any) -> None:
        # The connection has created its reader already.
        reader.__class__ = ChunkedStreamReader
        assert isinstance(reader, ChunkedStreamReader)
        reader.reset()
        super().__init__(closed, reader, **more)


def install() -> None:
    """Patch aiokafka: connections made from now on use this reader."""
    aiokafka.conn.AIOKafkaProtocol = _Protocol
