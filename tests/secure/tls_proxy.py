"""Puts TLS with client certificates before a server that is built without it.

The servers of the local stack's wheels are (`SSL is not supported by this build`), and Debian's
Postgres has no pgvector. What is tested is the client's side: verification, certificates, logins.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from select import select

from tests.secure.certificates import Certificates

_HOST = "127.0.0.1"
_SSL_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")
"""Postgres negotiates TLS on its own port: the client asks by this, the server answers S."""
_BYTES = 1 << 16
_LINGER_S = 10.0


class TlsProxy:
    """Forwards a port to another one, in threads, until it is closed."""

    def __init__(
        self, port: int, certificates: Certificates, name: str = "server", *, postgres: bool = False
    ) -> None:
        """`name`: of the server's certificate."""
        self._to, self._postgres = port, postgres
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificates.pem(name), certificates.key(name))
        self._context.load_verify_locations(certificates.pem("ca"))
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._listener = socket.create_server((_HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        if self._postgres and not _asks_for_tls(near):
            near.close()
            return
        with self._context.wrap_socket(
            near, server_side=True, do_handshake_on_connect=False
        ) as wrapped:
            self._open.add(wrapped)
            with contextlib.suppress(OSError):
                try:
                    wrapped.do_handshake()
                except ssl.SSLError:
                    _drain(wrapped)
                else:
                    with socket.create_connection((_HOST, self._to)) as far:
                        _forward(wrapped, far)
            self._open.discard(wrapped)


def _asks_for_tls(near: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        if near.recv(len(_SSL_REQUEST), socket.MSG_WAITALL) == _SSL_REQUEST:
            near.sendall(b"S")
            return True
    return False


def _drain(refused: ssl.SSLSocket) -> None:
    """Read what the client still sends: closed before, a reset would overtake the alert."""
    refused.settimeout(_LINGER_S)
    refused.shutdown(socket.SHUT_WR)
    while refused.recv(_BYTES):
        pass


def _forward(near: ssl.SSLSocket, far: socket.socket) -> None:
    """Pass on what either side sends until one of them ends."""
    while True:
        if not near.pending():
            readable, _, _ = select((near, far), (), ())
            if far in readable:
                if not (data := far.recv(_BYTES)):
                    return
                near.settimeout(None)
                near.sendall(data)
            if near not in readable:
                continue
        near.settimeout(0.0)  # a record may have no data of the application
        with contextlib.suppress(ssl.SSLWantReadError):
            if not (data := near.recv(_BYTES)):
                return
            far.sendall(data)
