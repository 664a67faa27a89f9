"""Makes and keeps certificates and passwords of a secured stack, in `<data>/secure`.

Made once, complete or not at all, and used again by every later start. Only this user can read
them.

| file | what |
|---|---|
| `certificates/ca.pem` | the authority that signs all others; its key is not kept |
| `certificates/broker-keystore.pem` | Kafka's certificate, and its login as a super user |
| `certificates/server.pem` | the certificate of Postgres and Redis |
| `certificates/ROLE.pem` | the certificate of a role of Postgres |
| `certificates/USER.pem` | the certificate of a process in Kafka, in place of its password there |
| `passwords/PROCESS` | the password of a process in Kafka and Redis |
| `executor.env`, `operator.env` | the variables of executors and of commands |
"""

from __future__ import annotations

import secrets
import shlex
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from deploy.access.rights import DEFAULT_USERS, EXECUTOR, OPERATOR, rights
from deploy.local.config import Addresses
from deploy.local.errors import StackError
from deploy.local.ports import HOST
from deploy.local.secure.certificates import LOCAL_HOSTS, CertificateFolder
from deploy.local.secure.private_files import write_private
from headstart.connections.kafka_security import KafkaSecurity, described_security, variable
from headstart.connections.own_security import CONFIG

USERS: Final = {name: user for name, user in DEFAULT_USERS.items() if name != "spans"}
"""The user of each process in Kafka and Redis, as `headstart topics acl` names them."""
BROKER: Final = "broker"
"""The common name of Kafka's certificate; clients that have it are super users."""
SERVER: Final = "server"
OWNER: Final = "postgres"
"""The superuser of Postgres."""
_READER: Final = "headstart_reader"
_ROLE_OF: Final = {
    **dict.fromkeys(USERS, _READER),
    **{each.identity: each.name for each in rights() if each.kind == "role"},
    OPERATOR: OWNER,
}
_DAYS: Final = 3_650
_FOLDER: Final = "secure"
_MECHANISM: Final = "SCRAM-SHA-512"
_OTHERS: Final = {
    CONFIG: "",
    variable("ssl_check_hostname"): "true",
    **{
        variable(name): ""
        for name in (
            "sasl_mechanism", "sasl_username", "sasl_password", "sasl_password_file", "ssl_cert",
            "ssl_key", "oauth_token_url",
        )
    },
}  # fmt: skip
"""Settings of another broker, which would take precedence, are set back."""


class Credentials:
    """The files of one data directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.certificates = CertificateFolder(folder / "certificates")

    @classmethod
    def opened(cls, data: Path, *, kafka_certificates: bool = False) -> Credentials:
        """Return those of a data directory; make them if there are none. Raises `StackError`.

        `kafka_certificates`: if they are made, processes log in to Kafka by certificate (mTLS), not
        by password; a directory keeps the way that it was made with.
        """
        folder = data / _FOLDER
        if not folder.exists():
            if (data / "postgres").exists() or (data / "redis").exists():
                raise StackError(
                    f"{data} was made without --secure, and its databases have no TLS: start "
                    "without --secure, or choose another data directory (--data)"
                )
            _make(folder, kafka_certificates=kafka_certificates)
        return cls(folder)

    @classmethod
    def kept(cls, data: Path) -> Credentials | None:
        """Return those of a data directory; None if it was made without `--secure`."""
        folder = data / _FOLDER
        return cls(folder) if folder.exists() else None

    def password(self, identity: str) -> str:
        """Return the password of a process."""
        return self._password_file(identity).read_text()

    @property
    def ca(self) -> Path:
        """The certificate of the authority."""
        return self.certificates.pem("ca")

    @property
    def by_certificate(self) -> bool:
        """Whether processes log in to Kafka by certificate."""
        return self.certificates.pem(USERS[OPERATOR]).exists()

    @property
    def principals(self) -> dict[str, str]:
        """The name of each process in Kafka's ACLs, without `User:`."""
        common_name = "CN=" if self.by_certificate else ""
        return {identity: f"{common_name}{user}" for identity, user in USERS.items()}

    @property
    def broker(self) -> KafkaSecurity:
        """How to log in as the broker itself, a super user."""
        return described_security(self._certificate(BROKER))

    def kafka(self, identity: str) -> KafkaSecurity:
        """How a process logs in at Kafka."""
        return described_security(self.kafka_options(identity))

    def kafka_options(self, identity: str) -> dict[str, str]:
        """Return how a process logs in at Kafka, by the names of `kafka_security.OPTIONS`."""
        if self.by_certificate:
            return self._certificate(USERS[identity])
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": _MECHANISM,
            "sasl_username": USERS[identity],
            "sasl_password_file": str(self._password_file(identity)),
            "ssl_ca": str(self.ca),
        }

    def redis(self, identity: str, port: int) -> str:
        """Return the URL of Redis with a process's user and password."""
        query = urlencode({"ssl_ca_certs": self.ca, "ssl_check_hostname": "true"}, quote_via=quote)
        login = f"{USERS[identity]}:{self.password(identity)}"
        return f"rediss://{login}@{HOST}:{port}/0?{query}"

    def postgres(self, identity: str, port: int, database: str) -> str:
        """Return the URL of Postgres with a process's role, whose login is its certificate."""
        role = _ROLE_OF[identity]
        query = {
            "sslmode": "verify-full",
            "sslrootcert": self.ca,
            "sslcert": self.certificates.pem(role),
            "sslkey": self.certificates.key(role),
        }
        encoded = urlencode(query, quote_via=quote)
        return f"postgresql://{role}@{HOST}:{port}/{database}?{encoded}"

    def variables(self, identity: str, addresses: Addresses) -> dict[str, str]:
        """Return the settings by which a process connects. `addresses`: of the operator."""
        postgres, redis = urlsplit(addresses.postgres), urlsplit(addresses.redis)
        assert postgres.port is not None
        assert redis.port is not None
        return {
            "HEADSTART_KAFKA": addresses.kafka,
            **_OTHERS,
            **{variable(name): value for name, value in self.kafka_options(identity).items()},
            "HEADSTART_POSTGRES": self.postgres(identity, postgres.port, postgres.path[1:]),
            "HEADSTART_REDIS": self.redis(identity, redis.port),
        }

    def write_environments(self, addresses: Addresses) -> dict[str, Path]:
        """Write the variables of executors and commands as shell exports; return the files."""
        files = {name: self._folder / f"{name}.env" for name in (EXECUTOR, OPERATOR)}
        for name, file in files.items():
            variables = self.variables(name, addresses)
            if name == OPERATOR:  # `status` and `doctor` look for the workers there
                variables["HEADSTART_DATA"] = str(self._folder.parent)
            lines = [f"export {key}={shlex.quote(value)}\n" for key, value in variables.items()]
            part = file.with_suffix(".part")
            write_private(part, "".join(lines))
            part.replace(file)
        return files

    def _certificate(self, name: str) -> dict[str, str]:
        return {
            "security_protocol": "SSL",
            "ssl_ca": str(self.ca),
            "ssl_cert": str(self.certificates.pem(name)),
            "ssl_key": str(self.certificates.key(name)),
        }

    def _password_file(self, identity: str) -> Path:
        return self._folder / "passwords" / identity


def require_unsecured(data: Path) -> None:
    """Raise `StackError` if a data directory was made with `--secure`."""
    if (data / _FOLDER).exists():
        raise StackError(
            f"{data} was made with --secure: start with --secure, or choose another data "
            "directory (--data)"
        )


def _make(folder: Path, *, kafka_certificates: bool) -> None:
    part = folder.with_suffix(".new")
    shutil.rmtree(part, ignore_errors=True)
    for each in (part, part / "certificates", part / "passwords"):
        each.mkdir(mode=0o700)
    certificates = CertificateFolder(part / "certificates")
    certificates.make_ca("ca", days=_DAYS)
    for name in (BROKER, SERVER):
        certificates.sign(name, hosts=LOCAL_HOSTS, days=_DAYS)
    users = USERS.values() if kafka_certificates else ()
    for name in (*sorted(set(_ROLE_OF.values())), *users):
        certificates.sign(name, days=_DAYS)
    certificates.write_keystore(BROKER)
    certificates.key("ca").unlink()  # nothing is signed after this
    for identity in USERS:
        write_private(part / "passwords" / identity, secrets.token_hex(24))
    part.rename(folder)
