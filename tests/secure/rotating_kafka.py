"""Logins at Kafka that tests change: users with passwords, or certificates of another authority."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final, Protocol

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from deploy.local.secure.certificates import LOCAL_HOSTS, CertificateFolder
from tests.secure.broker import ROTATING, Listeners
from tests.secure.certificates import Certificates
from tests.secure.scram_users import remove_user, set_password
from topics.kafka.admin import admin_client

REFUSED_S: Final = 2.0
"""For how long the broker refuses the logins that the files still have."""


class Rotating(Protocol):
    """Logins behind a proxy. `config`: a `client.properties` with the one that is valid now."""

    kafka: str
    config: Path
    secrets: list[str]

    def rotate(self) -> None:
        """Change the broker's side, end all connections, and then replace the files."""
        ...


class Passwords:
    """A user whose password changes, and then gives way to another user."""

    def __init__(self, listeners: Listeners, certificates: Certificates, folder: Path) -> None:
        self._listeners, self._ca = listeners, certificates.pem("ca")
        self.kafka, self.config = listeners.passwords, folder / "client.properties"
        self._users = [ROTATING[0], ROTATING[0], ROTATING[1]]
        self.secrets = [f"canary-rotated-{number}" for number in range(len(self._users))]
        self._used = 0
        set_password(listeners.internal, self._users[0], self.secrets[0])
        self._write()

    def rotate(self) -> None:
        """Use the next password, or user."""
        before, after = self._users[self._used], self._users[self._used + 1]
        self._used += 1
        set_password(self._listeners.internal, after, self.secrets[self._used])
        if before != after:
            remove_user(self._listeners.internal, before)
        assert self._listeners.proxies["passwords"].cut()
        time.sleep(REFUSED_S)
        self._write()

    def _write(self) -> None:
        replace(
            self.config,
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
            f"sasl.username={self._users[self._used]}\nsasl.password={self.secrets[self._used]}\n"
            f"ssl.ca.location={self._ca}\n",
        )


class OtherAuthority:
    """Certificates of clients and broker, which are replaced by those of another authority."""

    def __init__(self, listeners: Listeners, certificates: Certificates, folder: Path) -> None:
        self._listeners, self._folder, self._used = listeners, folder, 0
        self.kafka, self.config = listeners.certificates, folder / "client.properties"
        self.secrets: list[str] = []
        other = folder / "other"
        other.mkdir()
        self._made = [certificates, CertificateFolder(other)]
        self._made[1].make_ca("ca", days=2)
        self._made[1].sign("server", hosts=LOCAL_HOSTS, days=2)
        self._made[1].sign("worker", days=2)
        self._stores = [each.write_keystore("server") for each in self._made]
        self._write("ca", "pem", "key")
        self.config.write_text(
            "security.protocol=SSL\nssl.ca.location=ca\nssl.certificate.location=pem\n"
            "ssl.key.location=key\n"
        )

    def rotate(self) -> None:
        """Use the other authority; the files of clients are replaced one by one."""
        self._used = 1 - self._used
        self._configure()
        assert self._listeners.proxies["certificates"].cut()
        for name in ("ca", "pem", "key"):
            time.sleep(REFUSED_S / 2)
            self._write(name)

    def _configure(self) -> None:
        """Have the broker present a certificate of this authority, and accept no others."""
        prefix = "listener.name.certificates.ssl"
        settings = {
            f"{prefix}.keystore.location": str(self._stores[self._used]),
            f"{prefix}.keystore.type": "PEM",
            f"{prefix}.truststore.location": str(self._made[self._used].pem("ca")),
            f"{prefix}.truststore.type": "PEM",
        }

        async def run() -> None:
            async with admin_client(self._listeners.internal) as admin:
                broker = ConfigResource(ConfigResourceType.BROKER, "1", settings)
                for answer in await admin.alter_configs([broker]):
                    assert all(code == 0 for code, *_ in answer.resources), answer

        asyncio.run(run())

    def _write(self, *names: str) -> None:
        made = self._made[self._used]
        files = {"ca": made.pem("ca"), "pem": made.pem("worker"), "key": made.key("worker")}
        for name in names:
            replace(self._folder / name, files[name].read_text())


def replace(file: Path, text: str) -> None:
    """Replace a file at once, as orchestrators do."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)
