"""Asks a server by a TLS handshake what its client's error does not say. Blocks for seconds.

libpq says `certificate verify failed` of an expired certificate and of one of an unknown CA alike.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Final

UNEXPLAINED: Final = re.compile(r"SSL error: certificate verify failed", re.IGNORECASE)
"""What libpq says of each certificate that it refuses."""
_TIMEOUT_S: Final = 2.0
_SSL_REQUEST: Final = (8).to_bytes(4, "big") + (80_877_103).to_bytes(4, "big")
"""How a client of Postgres asks for TLS; the server answers S, or N if it has none."""
_EXPIRED, _NOT_YET = 10, 9
"""OpenSSL's codes of a failed verification (x509_vfy.h); others are of an unknown CA."""
EXPIRED: Final = "expired"
NOT_YET_VALID: Final = "not yet valid"
UNTRUSTED: Final = "untrusted"


def certificate_fault(given: Mapping[str, object]) -> str | None:
    """Return why a Postgres server's certificate is refused: one of the constants; None: unknown.

    `given`: libpq's parameters of one host. The handshake is ended before a login.
    """
    host = str(given.get("hostaddr") or given.get("host") or "localhost")
    port = str(given.get("port") or os.environ.get("PGPORT") or 5432)
    try:
        context = _trusting(_file(given, "sslrootcert", "root.crt"))
        with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
            if given.get("sslnegotiation") != "direct":
                connection.sendall(_SSL_REQUEST)
                if connection.recv(1) != b"S":
                    return None
            context.wrap_socket(connection, server_hostname=str(given.get("host") or host)).close()
    except ssl.SSLCertVerificationError as error:
        return {_EXPIRED: EXPIRED, _NOT_YET: NOT_YET_VALID}.get(error.verify_code, UNTRUSTED)
    except (OSError, ValueError):
        return None
    return None


def client_certificate(given: Mapping[str, object]) -> str:
    """Return the file of the client's certificate that libpq uses with these parameters."""
    return _file(given, "sslcert", "postgresql.crt")


def _file(given: Mapping[str, object], parameter: str, default: str) -> str:
    named = given.get(parameter) or os.environ.get(f"PG{parameter.upper()}")
    return str(named or os.path.join(os.path.expanduser("~/.postgresql"), default))


def _trusting(root: str) -> ssl.SSLContext:
    """Return a context that verifies the chain, not the host name, as `sslmode=verify-ca`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_alpn_protocols(["postgresql"])  # without it a server refuses direct TLS
    if root == "system":
        context.load_default_certs()
    else:
        context.load_verify_locations(root)
    return context
