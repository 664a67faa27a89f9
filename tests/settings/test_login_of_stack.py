"""How commands log in at the broker of the local stack: as it was started, whatever else is set."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import Addresses
from deploy.local.data_dir_lock import DataDirectoryLock
from deploy.local.secure.credentials import Credentials
from headstart.connections.kafka_security import UNSECURED
from headstart.connections.own_security import own_security
from settings import environment, read_settings, read_with_origins

STACK = Addresses("127.0.0.1:1", "postgresql://here:3/db", "redis://127.0.0.1:2/0")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a running stack, and the login of another broker in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("HEADSTART_KAFKA_SASL_USERNAME", "other")
    monkeypatch.setenv("HEADSTART_KAFKA_SASL_PASSWORD", "canary-other")
    hold = DataDirectoryLock.acquire(tmp_path / "data")
    hold.announce(STACK, {})
    yield tmp_path / "data"
    hold.release()


def test_plain_text_where_it_was_started_without_secure(data: Path) -> None:
    settings = read_settings(data=data)
    assert own_security() == UNSECURED
    assert environment(settings)["HEADSTART_KAFKA_SASL_PASSWORD"] == "", "as its children"
    assert environment(settings)["HEADSTART_KAFKA_SECURITY_PROTOCOL"] == "PLAINTEXT"


@pytest.mark.skipif(not shutil.which("openssl"), reason="makes certificates with openssl")
@pytest.mark.parametrize("kafka_certificates", [False, True])
def test_as_the_operator_where_it_was_started_with_secure(
    data: Path, *, kafka_certificates: bool
) -> None:
    made = Credentials.opened(data, kafka_certificates=kafka_certificates)
    found = read_with_origins(data=data)
    assert own_security() == made.kafka("operator")
    assert own_security().uses_login is not kafka_certificates
    assert found.origins["kafka_security_protocol"] == "running stack"
    inherited = environment(found.settings)
    wanted = made.variables("operator", STACK)
    for name in wanted.keys() - {"HEADSTART_POSTGRES", "HEADSTART_REDIS"}:
        assert inherited[name].lower() == wanted[name].lower(), name


def test_another_broker_keeps_its_login(data: Path) -> None:
    read_settings(data=data, kafka="broker:9092")
    assert own_security().username == "other"
