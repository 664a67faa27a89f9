"""A Postgres with TLS that asks for a client's certificate, and whose own can be replaced."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from functools import partial
from pathlib import Path

from deploy.local.ports import HOST, Ports
from deploy.local.postgres import Postgres
from deploy.local.process_group import ProcessGroup
from deploy.local.secure.credentials import OWNER
from deploy.local.secure.servers import SecuredPostgres, postgres_tls_settings
from deploy.local.service_account import Account
from tests.patience import until
from tests.secure.certificates import Certificates


class _ByTests(SecuredPostgres):
    """Postgres of `up --secure`, with certificates of the tests' CA, whose key they have."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates

    def settings(self, cluster: Path, account: Account | None) -> dict[str, str]:
        self.write = partial(postgres_tls_settings, cluster, self._certificates, account)
        return self.write()

    def dsn(self, port: int, database: str) -> str:
        return dsn(self._certificates, port, database)


def dsn(certificates: Certificates, port: int, database: str, client: str = OWNER) -> str:
    """The URL with a client's certificate; "": without one."""
    query = f"sslmode=verify-full&sslrootcert={certificates.pem('ca')}"
    if client:
        query += f"&sslcert={certificates.pem(client)}&sslkey={certificates.key(client)}"
    else:
        query += "&sslcert=/absent"
    return f"postgresql://{OWNER}@{HOST}:{port}/{database}?{query}"


class TlsPostgres:
    """The running server; it presents the certificate `server` until `present` is called."""

    def __init__(self, group: ProcessGroup, certificates: Certificates) -> None:
        self._certificates, self._secured = certificates, _ByTests(certificates)
        ports = Ports(group.data)
        self._service = Postgres(group, ports, 0, self._secured)
        self._service.prepare()
        self._service.launch()
        group.launched()
        address = self._service.ready()
        ports.release()
        self.port = int(address.rpartition(":")[2].partition("/")[0])

    def dsn(self, client: str = OWNER) -> str:
        return dsn(self._certificates, self.port, "headstart", client)

    def present(self, name: str) -> None:
        """Have new connections see this certificate."""
        self._secured.write(server=name)
        server = self._service.server
        assert server is not None
        os.kill(server.pid, signal.SIGHUP)
        wanted = self._certificates.pem(name).read_text().strip()
        until(lambda: self._presented() == wanted)

    def _presented(self) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection((HOST, self.port), 10) as connection:
            connection.sendall((8).to_bytes(4, "big") + (80877103).to_bytes(4, "big"))
            assert connection.recv(1) == b"S"
            with context.wrap_socket(connection) as wrapped:
                der = wrapped.getpeercert(binary_form=True)
        assert der is not None
        return ssl.DER_cert_to_PEM_cert(der).strip()
