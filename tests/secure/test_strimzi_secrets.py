"""The files that Strimzi's secrets have, mounted as Kubernetes mounts them."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError

from headstart.connections.kafka_connections import client_options
from headstart.connections.own_security import security_from_environment, use_security
from headstart.kafka_producer import require_broker
from tests.secure.broker import PASSWORD, USER, Listeners
from tests.secure.certificates import Certificates

OF_P12: Final = "canary-p12-secret"


class Mounted:
    """A secret's folder: each file is a link through `..data`, which a new version replaces."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._versions = 0
        folder.mkdir()

    def update(self, files: Mapping[str, bytes]) -> None:
        self._versions += 1
        version = self.folder / f"..2026_11_29_10_00_0{self._versions}"
        version.mkdir()
        for name, content in files.items():
            (version / name).write_bytes(content)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        fresh = self.folder / "..data_tmp"
        fresh.symlink_to(version.name)
        fresh.rename(self.folder / "..data")

    def file(self, name: str) -> str:
        path = self.folder / name
        assert path.is_file()
        return str(path)


def of_tls_user(certificates: Certificates, name: str) -> dict[str, bytes]:
    """What the secret of a KafkaUser with `authentication: {type: tls}` has."""
    folder = certificates.folder
    store = folder / f"{name}.p12"
    words = ["-export", "-in", f"{name}.pem", "-inkey", f"{name}.key", "-out", store.name]
    subprocess.run(
        ["openssl", "pkcs12", *words, "-passout", f"pass:{OF_P12}"], cwd=folder, check=True
    )
    return {
        "ca.crt": certificates.pem("ca").read_bytes(),  # of the CA of clients
        "user.crt": certificates.pem(name).read_bytes(),
        "user.key": certificates.key(name).read_bytes(),
        "user.p12": store.read_bytes(),
        "user.password": OF_P12.encode(),
    }


def of_scram_user() -> dict[str, bytes]:
    """What the secret of a KafkaUser with `authentication: {type: scram-sha-512}` has."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    jaas = f'{module} username="{USER}" password="{PASSWORD}";'
    return {"password": PASSWORD.encode(), "sasl.jaas.config": jaas.encode()}


@pytest.fixture
def cluster_ca(certificates: Certificates, tmp_path: Path) -> Mounted:
    """The secret CLUSTER-cluster-ca-cert."""
    found = Mounted(tmp_path / "cluster-ca")
    ca = certificates.pem("ca").read_bytes()
    found.update({"ca.crt": ca, "ca.p12": b"a store of Java", "ca.password": OF_P12.encode()})
    return found


@pytest.mark.parametrize("prefix", ["KAFKA_", "HEADSTART_KAFKA_"])
@pytest.mark.parametrize("more", [{}, {"SSL_KEY_PASSWORD_FILE": "user.password"}])
def test_a_certificate_of_strimzi_logs_in_also_after_its_renewal(
    listeners: Listeners,
    certificates: Certificates,
    cluster_ca: Mounted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    prefix: str,
    more: Mapping[str, str],
) -> None:
    """`user.password` is that of `user.p12`; `user.key` has none."""
    user = Mounted(tmp_path / "user")
    user.update(of_tls_user(certificates, "intruder"))
    monkeypatch.setenv(f"{prefix}SSL_CA", cluster_ca.file("ca.crt"))
    named = {"SSL_CERT": "user.crt", "SSL_KEY": "user.key", **more}
    for option, name in named.items():
        monkeypatch.setenv(f"{prefix}{option}", user.file(name))
    use_security(security_from_environment())

    async def log_in() -> None:
        client = AIOKafkaClient(bootstrap_servers=listeners.mtls, **client_options())
        with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
            await client.bootstrap()
        user.update(of_tls_user(certificates, "worker"))
        await client.bootstrap()
        await client.close()

    asyncio.run(log_in())


def test_a_password_of_strimzi_logs_in(
    listeners: Listeners,
    cluster_ca: Mounted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user = Mounted(tmp_path / "user")
    user.update(of_scram_user())
    monkeypatch.setenv("KAFKA_SSL_CA", cluster_ca.file("ca.crt"))
    monkeypatch.setenv("KAFKA_SASL_MECHANISM", "SCRAM-SHA-512")
    monkeypatch.setenv("KAFKA_SASL_USERNAME", USER)
    monkeypatch.setenv("KAFKA_SASL_PASSWORD_FILE", user.file("password"))
    use_security(security_from_environment())
    asyncio.run(require_broker(listeners.sasl))


def test_the_jaas_file_of_strimzi_is_a_value_of_client_properties(
    listeners: Listeners,
    cluster_ca: Mounted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user = Mounted(tmp_path / "user")
    user.update(of_scram_user())
    jaas = Path(user.file("sasl.jaas.config")).read_text()
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={cluster_ca.file('ca.crt')}\nsasl.jaas.config={jaas}\n"
    )
    monkeypatch.setenv("HEADSTART_KAFKA_CONFIG", str(config))
    use_security(security_from_environment())
    asyncio.run(require_broker(listeners.sasl))
