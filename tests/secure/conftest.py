"""A broker with logins and certificates, and TLS before Postgres and Redis, for these tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.ports import Ports
from deploy.local.process_group import ProcessGroup
from headstart.connections.own_security import use_security
from tests.secure.broker import Listeners, start_broker
from tests.secure.certificates import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if missing := [each for each in ("java", "mvn", "openssl") if not shutil.which(each)]:
        pytest.skip(f"Apache Kafka with TLS needs Java 17, Maven and openssl: no {missing[0]}")
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def listeners(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Listeners]:
    folder: Path = tmp_path_factory.mktemp("secure-kafka")
    group = ProcessGroup(folder)
    try:
        yield start_broker(group, Ports(folder), certificates)
    finally:
        group.close()


@pytest.fixture(autouse=True)
def no_security_left() -> Iterator[None]:
    yield
    use_security(None)
