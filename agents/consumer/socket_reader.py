"""What a broker sends, read with one copy.

`asyncio.StreamReader` appends each quarter of a megabyte to one buffer, which moves as it grows,
and stops the transport whenever that holds more than 128 kB: for fetches of megabytes a quarter of
a threshold worker's time. Here pieces are kept as they come and put together once, when an answer
is complete.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka.conn


class ChunkedStreamReader(asyncio.StreamReader):
    """A stream of which exactly so many bytes are read each time, as aiokafka does.

    It never stops the transport: a broker sends only what was asked for.
    """

    def begin(self) -> None:
        """Begin with nothing read."""
        self._pieces = list[bytes | memoryview]()
        self._waiting = 0
        """Bytes in all pieces."""

    def feed_data(self, data: Any) -> None:
        """Append what has come."""
        if data:
            self._pieces.append(bytes(data))
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
        for piece in self._pieces:
            if rest < len(piece):
                break
            taken.append(piece)
            rest -= len(piece)
        del self._pieces[: len(taken)]
        if rest:
            piece = memoryview(self._pieces[0])
            taken.append(piece[:rest])
            self._pieces[0] = piece[rest:]
        self._waiting -= n
        return b"".join(taken)


class _Protocol(aiokafka.conn.AIOKafkaProtocol):  # type: ignore[misc]
    def __init__(self, closed: Any, reader: asyncio.StreamReader, **more: Any) -> None:
        # The connection makes its reader itself and has it already.
        reader.__class__ = ChunkedStreamReader
        assert isinstance(reader, ChunkedStreamReader)
        reader.begin()
        super().__init__(closed, reader, **more)


def install() -> None:
    """Have every connection of aiokafka that is made from now on read so."""
    aiokafka.conn.AIOKafkaProtocol = _Protocol
