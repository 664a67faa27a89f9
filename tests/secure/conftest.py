"""A broker with logins and certificates, and TLS before Postgres and Redis, for these tests."""

from __future__ import annotations

import asyncio
import gc
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import Addresses, Stack, StackConfig
from deploy.local.ports import Ports
from deploy.local.process_group import ProcessGroup
from deploy.system import prepare
from tests.secure.broker import Listeners, start_broker
from tests.secure.certificates import Certificates
from tests.secure.commands import Command
from tests.secure.identities import PASSWORD, STRANGER, USERS, Identities
from tests.secured import LEFT_BY_TLS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings(LEFT_BY_TLS))


@pytest.fixture(scope="session", autouse=True)
def collected() -> Iterator[None]:
    """Find what TLS has left while its warnings are ignored, not after the last test."""
    yield
    gc.collect()


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
        limited = dict.fromkeys((*USERS.values(), STRANGER), PASSWORD)
        made = start_broker(group, Ports(folder), certificates, limited)
        yield made
        for each in made.proxies.values():
            each.close()
    finally:
        group.close()


@pytest.fixture(scope="session")
def plain(listeners: Listeners, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    """The stack as the servers themselves listen, prepared: what the tests look at."""
    config = StackConfig(data=tmp_path_factory.mktemp("stack"), kafka=listeners.internal)
    with Stack(config) as stack:
        asyncio.run(prepare(stack.addresses, 4))
        yield stack.addresses


@pytest.fixture(scope="session")
def identities(
    listeners: Listeners,
    plain: Addresses,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Identities:
    """A login for each process, with the rights that `headstart topics acl` prints."""
    return Identities(listeners, plain, certificates, tmp_path_factory.mktemp("identities"))


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """Runs a command that fails."""
    monkeypatch.chdir(tmp_path)
    for stream in ("stdout", "stderr"):  # `main` wraps them
        monkeypatch.setattr(sys, stream, getattr(sys, stream))
    return Command(monkeypatch, capsys)


@pytest.fixture(autouse=True)
def nothing_left_by_tls() -> Iterator[None]:
    """Collects transports now: at the end of the run no filter of warnings applies to them."""
    yield
    gc.collect()
