"""Puts TLS with client certificates before a server that is built without it.

The servers of the local stack's wheels are (`SSL is not supported by this build`), and Debian's
Postgres has no pgvector. What is tested is the client's side: verification, certificates, logins.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading

from tests.secure.certificates import Certificates

_HOST = "127.0.0.1"
_SSL_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")
"""Postgres negotiates TLS on its own port: the client asks by this, the server answers S."""


class TlsProxy:
    """Forwards a port to another one, in a thread, until it is closed."""

    def __init__(
        self, port: int, certificates: Certificates, name: str = "server", *, postgres: bool = False
    ) -> None:
        """`name`: of the server's certificate."""
        self._to, self._postgres = port, postgres
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificates.pem(name), certificates.key(name))
        self._context.load_verify_locations(certificates.pem("ca"))
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._loop = asyncio.new_event_loop()
        direct = None if postgres else self._context
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._forward, _HOST, 0, ssl=direct)
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if self._postgres and not await self._negotiate(reader, writer):
                return
            far_reader, far_writer = await asyncio.open_connection(_HOST, self._to)
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    async def _negotiate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Begin TLS; refuse what does not ask for it."""
        if await reader.readexactly(8) != _SSL_REQUEST:
            writer.close()
            return False
        writer.write(b"S")
        await writer.start_tls(self._context)
        return True


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
