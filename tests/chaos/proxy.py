"""A TCP proxy whose connections can be cut, as psycopg's own tests have one, or cut one way."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

HOST = "127.0.0.1"


class Proxy:
    """Forwards one port to another, in a thread, until it is closed."""

    def __init__(self, port: int, at: int = 0) -> None:
        """`at`: the port to listen at; 0: any."""
        self._to = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._answering = asyncio.Event()
        self._answering.set()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server = self._loop.run_until_complete(
            asyncio.start_server(self._forward, HOST, at)
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def cut(self) -> int:
        """Reset every connection, whatever is under way; return how many there were."""

        async def abort() -> int:
            writers = list(self._writers)
            for writer in writers:
                writer.transport.abort()
            return len(writers)

        return asyncio.run_coroutine_threadsafe(abort(), self._loop).result(10) // 2

    @contextlib.contextmanager
    def unanswered(self) -> Iterator[None]:
        """Deliver requests, and no answer, for the length of a block: a network cut one way."""
        self._loop.call_soon_threadsafe(self._answering.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._answering.set)

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._server.close()
        self._loop.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._open(writer):
            try:
                far_reader, far_writer = await asyncio.open_connection(HOST, self._to)
            except OSError:
                return
            with self._open(far_writer):
                await asyncio.gather(
                    _pump(reader, far_writer), _pump(far_reader, writer, self._answering)
                )

    @contextlib.contextmanager
    def _open(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._writers.add(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)
            writer.close()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event | None = None
) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            if gate is not None:
                await gate.wait()
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
