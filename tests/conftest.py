"""Fixtures that every suite shares: one local stack for the session, on real parts.

TEST_KAFKA chooses the broker: `embedded` (default), `apache` (Apache Kafka, needs Java and Maven),
or host:port of one that runs. TEST_SECURE, `scram` or `mtls`, makes broker, Postgres and Redis
secure (`secured.py`). Both stay in the environment: pytest-xdist's workers read them too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings

from deploy.local import Addresses, Stack
from deploy.system import prepare
from headstart.connections import own_security
from kernels.loader import load
from processing.kernel_handle import kernels
from sinks.postgres.migrate import migrate
from tests import secured
from tests.clusters import Cluster, running_cluster
from tests.databases import made_database
from tests.sentinels import Sentinels, running_sentinels
from tests.standbys import PostgresPair, Server
from topics.epoch import Epoch

# The only profile: no deadline, because a busy machine is no failure of a law.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

BROKER = "apache" if secured.MODE else os.environ.get("TEST_KAFKA", "embedded")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # What runs in the background ignores Ctrl-C, and so would all that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
for name in [name for name in os.environ if name.startswith(("HEADSTART_", "KAFKA_"))]:
    if name != "HEADSTART_TRACES":  # a tester's own settings must not reach what is tested
        del os.environ[name]
# Nor may what is tested leave events, or a process, behind in the tester's own spool.
SPOOL = tempfile.TemporaryDirectory(prefix="headstart-spool-")
os.environ |= {"HEADSTART_SPOOL": SPOOL.name, "HEADSTART_SHIPPER": "thread"}
os.environ |= secured.environment()

needs_apache = pytest.mark.skipif(
    not (shutil.which("java") and shutil.which("mvn")),
    reason="Apache Kafka needs Java 17 and Maven",
)


LEFT_OUT = {
    "embedded": ("slow", "slow, or about Apache Kafka; `make test-apache` runs it"),
    "apache": ("any_broker", "the same on every broker; `make test` runs it on the embedded one"),
}
"""Tests that CI runs on the other broker only, by their marker."""


LONGEST = (
    "snippets", "rebuild", "hostile", "epochs", "transactions", "restart", "stuck", "compose",
    "refusal_limits", "config", "commands", "examples", "notices", "dead_letters", "demo", "health",
    "services_die", "recreation", "fairness", "tune", "backup", "stopping", "verify", "agreement",
    "sentinel", "cluster", "repairing", "postgres_failover", "purge", "topic_erasure",
    "killed_erasing", "added_partitions", "existing", "shared_learning", "recreated_log", "learner",
    "merging", "interventions", "rotated_logins", "user_memory",
)  # fmt: skip
"""Modules of tests/integration that take more than 30 s, longest first, as `make test` and
`make test-apache` print it at their end: a process that begins one last works alone at the end."""


def place_in_run(item: pytest.Item, shared: AbstractSet[Path]) -> tuple[bool, bool, int]:
    """Return the sort key of a test: what has a whole system running from then on comes last.

    `shared`: the files whose tests use the system of the process. They follow the ones with a
    system of their own: an idle system takes a fifth of a core.
    """
    name = item.path.stem.removeprefix("test_")
    is_integration = item.path.parent.name == "integration"
    place = LONGEST.index(name) if is_integration and name in LONGEST else len(LONGEST)
    return is_integration, item.path in shared, place


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in order, and leave out those that CI runs on the other broker.

    A secured run is of both brokers' tests, without those of plain services.
    """
    shared = {item.path for item in items if "system" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: place_in_run(item, shared))
    if secured.MODE:
        leave_out_plain(items)
        return
    marker, reason = LEFT_OUT.get(BROKER, ("", ""))
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(pytest.mark.skip(reason=reason))


def leave_out_plain(items: list[pytest.Item]) -> None:
    """Leave out what a secured run does not have."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings(secured.LEFT_BY_TLS))
        if secured.MISSING:
            item.add_marker(pytest.mark.skip(reason=secured.MISSING))
        if plain := item.get_closest_marker("plain_only"):
            item.add_marker(pytest.mark.skip(reason=f"plain only: {plain.kwargs['reason']}"))


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """The command line quietens some loggers; of one that a test runs here that must not stay."""
    loggers = [logging.getLogger(name) for name in ("aiokafka", "headstart.thresholds")]
    before = [each.level for each in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def security(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor may the security of Kafka connections that such a command has set."""
    monkeypatch.setattr(own_security, "_own", own_security._own)


@pytest.fixture(scope="session")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    """A broker, Postgres and Redis for the session, without workers."""
    config = secured.stack_config(data=tmp_path_factory.mktemp("stack"), kafka=BROKER)
    with Stack(config) as stack:
        yield stack.addresses


@pytest.fixture(scope="session")
def log_epoch(addresses: Addresses) -> Epoch:
    """The log of the session's broker: topics with four partitions, whichever test is first."""
    return asyncio.run(prepare(addresses, 4))


@pytest.fixture(scope="module")
def compiled() -> Any:
    """The compiled code, as a worker has it."""
    assert load()
    module = kernels()
    for each in vars(module).values():
        if hasattr(each, "disable_compile"):
            each.disable_compile()  # for an array of another layout a worker would block
    return module


@pytest.fixture(scope="session")
def kafka(addresses: Addresses) -> str:
    return addresses.kafka


@pytest.fixture(scope="session")
def postgres_dsn(addresses: Addresses) -> str:
    return addresses.postgres


@pytest.fixture(scope="session")
def redis_url(addresses: Addresses) -> str:
    return addresses.redis


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of a module's tests."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """An empty cluster, whose nodes all run on after the test."""
    for each in shared_cluster.running_masters():
        each.client.flushall()
    return shared_cluster


@pytest.fixture
def mortal_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of one test, which may end its nodes."""
    with running_cluster(tmp_path) as made:
        yield made


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[Sentinels]:
    """A primary and a replica of Redis, and a Sentinel that names the primary."""
    with running_sentinels(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def postgres_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty cluster of Postgres."""
    made = Server(tmp_path_factory.mktemp("postgres-template") / "cluster")
    made.create()
    return made.data


@pytest.fixture
def postgres_pair(tmp_path: Path, postgres_template: Path) -> Iterator[PostgresPair]:
    """A primary of Postgres and a replica that follows it."""
    made = PostgresPair(tmp_path, postgres_template)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def closed() -> Iterator[str]:
    """An address at which nothing listens, nor can begin to: it is bound."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


@pytest.fixture
def tenant() -> str:
    """A tenant of this test's own."""
    return f"tenant-{uuid4().hex}"


@pytest.fixture
def database(postgres_dsn: str) -> Iterator[str]:
    """An empty database of this test's own."""
    with made_database(postgres_dsn) as dsn:
        yield dsn


@pytest.fixture
def migrated(database: str) -> str:
    """The same, with our tables in it."""
    asyncio.run(migrate(database))
    return database
