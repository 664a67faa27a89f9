"""What Kafka, Postgres and Redis of the local stack are started with when they are secured."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Final

from deploy.access.kafka_acl_requests import acls_of, add_acls
from deploy.access.redis_acls import redis_commands
from deploy.access.rights import OPERATOR, Right, rights
from deploy.local import readiness
from deploy.local.ports import HOST
from deploy.local.secure.certificates import CertificateFolder
from deploy.local.secure.credentials import BROKER, SERVER, USERS, Credentials
from deploy.local.secure.private_files import write_private
from deploy.local.secure.programs import knows_setinfo, postgres_installation, redis_server
from deploy.local.service_account import Account

# Paths are relative to the server's directory, as all in `apache_kafka.py`. Of the listeners only
# the first is for clients; the others want a certificate of the CA, and only the broker's own may
# do anything there.
_PROPERTIES: Final = """\
listeners=CLIENTS://{host}:{port},INTERNAL://{host}:{internal},CONTROLLER://{host}:{controller}
advertised.listeners=CLIENTS://{host}:{port},INTERNAL://{host}:{internal}
listener.security.protocol.map=CLIENTS:{protocol},INTERNAL:SSL,CONTROLLER:SSL
inter.broker.listener.name=INTERNAL
listener.name.internal.ssl.client.auth=required
listener.name.controller.ssl.client.auth=required
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=false
super.users=User:CN={broker}
ssl.keystore.type=PEM
ssl.keystore.location=../secure/certificates/{broker}-keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location=../secure/certificates/ca.pem
"""
_BY_PASSWORD: Final = """\
listener.name.clients.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.clients.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
"""
_BY_CERTIFICATE: Final = "listener.name.clients.ssl.client.auth=required\n"
_HBA: Final = "hostssl all all 127.0.0.1/32 cert\n"
"""TLS only; the common name of the client's certificate is its role."""
_SETINFO: Final = "client|setinfo"


class SecuredBroker:
    """Apache Kafka with TLS, a login by SCRAM or by certificate, and an authorizer."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._internal = 0

    def properties(self, port: int, controller: int, internal: int) -> str:
        """Return lines of `server.properties`, which replace others of the same name."""
        self._internal = internal
        by_certificate = self._credentials.by_certificate
        common = _PROPERTIES.format(
            host=HOST, port=port, controller=controller, internal=internal, broker=BROKER,
            protocol="SSL" if by_certificate else "SASL_SSL",
        )  # fmt: skip
        return common + (_BY_CERTIFICATE if by_certificate else _BY_PASSWORD)

    def format_words(self, home: Path) -> list[str]:
        """Return an argument of `StorageTool format` that adds users with passwords, if any have.

        It names a file: process lists show arguments, and these have passwords.
        """
        if self._credentials.by_certificate:
            return []
        words = []
        for identity, user in USERS.items():
            login = f"name={user},password={self._credentials.password(identity)}"
            words += ["--add-scram", f"SCRAM-SHA-512=[{login}]"]
        write_private(self._file(home), "\n".join(words))
        return [f"@{self._file(home).name}"]

    def formatted(self, home: Path) -> None:
        """Remove the file of the passwords."""
        self._file(home).unlink(missing_ok=True)

    def probe(self, address: str) -> None:
        """Log in as the operator, and add the ACLs. Raises if the broker is not ready."""
        readiness.kafka(address, security=self._credentials.kafka(OPERATOR))
        given = acls_of(rights(), self._credentials.principals)
        asyncio.run(add_acls(f"{HOST}:{self._internal}", self._credentials.broker, given))

    def _file(self, home: Path) -> Path:
        return home / "scram.args"


class SecuredPostgres:
    """Postgres with TLS, and a certificate for each role instead of a password."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def installation(self) -> Path:
        """Return the folder with `bin`. Raises `StackError`."""
        return postgres_installation()

    def settings(self, cluster: Path, account: Account | None) -> dict[str, str]:
        """Write certificates and `hba` file into the cluster, and return the server's settings."""
        return postgres_tls_settings(cluster, self._credentials.certificates, account)

    def dsn(self, port: int, database: str) -> str:
        """Return the operator's URL."""
        return self._credentials.postgres(OPERATOR, port, database)


def postgres_tls_settings(
    cluster: Path, certificates: CertificateFolder, account: Account | None, *, server: str = SERVER
) -> dict[str, str]:
    """Write certificates and `hba` file into a cluster of Postgres, and return its settings.

    `certificates`: those of the authority `ca` and of `server`. `account`: of the server process.
    """
    files = {
        "server.pem": certificates.pem(server),
        "server.key": certificates.key(server),
        "ca.pem": certificates.pem("ca"),
    }
    written = {name: path.read_text() for name, path in files.items()}
    for name, text in (written | {"secure_hba.conf": _HBA}).items():
        write_private(cluster / name, text, account)
    return {
        "ssl": "on",
        "ssl_cert_file": "server.pem",
        "ssl_key_file": "server.key",
        "ssl_ca_file": "ca.pem",
        "hba_file": "secure_hba.conf",  # relative to the server's directory, the cluster
    }


class SecuredRedis:
    """Redis with TLS and ACL users; the default user is off."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def program(self) -> Path:
        """Return the server. Raises `StackError`."""
        return redis_server()

    def options(self, home: Path, port: int) -> dict[str, str]:
        """Write the users' file into the server's directory, and return the options."""
        write_private(home / "users.acl", self._users())
        certificates = self._credentials.certificates
        return {
            "port": "0",
            "tls-port": str(port),
            "tls-cert-file": str(certificates.pem(SERVER)),
            "tls-key-file": str(certificates.key(SERVER)),
            "tls-ca-cert-file": str(self._credentials.ca),
            "tls-auth-clients": "no",
            "aclfile": "users.acl",
        }

    def url(self, port: int) -> str:
        """Return the operator's URL."""
        return self._credentials.redis(OPERATOR, port)

    def _users(self) -> str:
        known = knows_setinfo(self.program())
        given: list[Right] = [each for each in rights() if known or each.name != _SETINFO]
        hashes = {
            user: hashlib.sha256(self._credentials.password(identity).encode()).hexdigest()
            for identity, user in USERS.items()
        }
        lines = ["user default off"]
        for command in redis_commands(given, USERS):
            user, rules = command.removeprefix("ACL SETUSER ").split(" ", 1)
            lines.append(f"user {user} {rules} #{hashes[user]}")
        return "\n".join(lines) + "\n"
