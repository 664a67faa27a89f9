"""One running system for the session, and what the tests do to it: emit, wait, look, run commands.

Every test has a tenant of its own, so that they share the system.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

import psycopg
import pytest
from redis import Redis

from deploy.local import Stack
from deploy.system import System, prepare
from headstart.events.schema import new_id
from headstart.keys import redis_key
from sinks.epochs import REDIS_KEY
from tests.integration.hosts import Site
from tests.integration.topic_records import read_whole_topic
from tests.patience import PATIENCE_S, until
from tests.processes import ENVIRONMENT, command_line, run_command
from tests.secured import stack_config

PARTITIONS = 4

Event = dict[str, Any]


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config) -> str:
    """`embedded`, `apache`, or an address, as TEST_KAFKA chose; `apache` in a secured run."""
    for plugin in pytestconfig.pluginmanager.get_plugins():
        if hasattr(plugin, "BROKER") and hasattr(plugin, "needs_apache"):
            return str(plugin.BROKER)
    raise AssertionError("tests/conftest.py chooses the broker")


@pytest.fixture(scope="session")
def messages() -> list[str]:
    """The system's messages, such as restarts of workers."""
    return []


@pytest.fixture(scope="session")
def system(
    broker: str, messages: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """Everything that `headstart up` runs, in this process."""
    config = stack_config(data=tmp_path_factory.mktemp("system"), kafka=broker)
    with System(config, partitions=PARTITIONS, echo=messages.append) as running:
        yield running


_STATE = "SELECT consumer, epoch, partition, next_offset FROM sink_offsets"


class Stored:
    """What Postgres and Redis hold of one tenant."""

    def __init__(
        self, postgres: str, redis: str, tenant: str, check: Callable[[], None] | None = None
    ) -> None:
        """`check`: restarts workers that died; called while waiting."""
        self._postgres, self._redis, self.tenant = postgres, redis, tenant
        self._check = check

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._postgres) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()

    def change(self, statement: str, *parameters: object) -> None:
        """Execute it beside any transaction."""
        with psycopg.connect(self._postgres, autocommit=True) as connection:
            connection.execute(statement.encode(), parameters or None)

    def ids(self) -> list[str]:
        """The ids of all rows, so that one stored twice is there twice."""
        found = self.query("SELECT id::text FROM episodic_events WHERE tenant = %s", self.tenant)
        return sorted(row[0] for row in found)

    def served(self, *workflow_types: str) -> dict[str, Event]:
        """The values in Redis by context path."""
        with Redis.from_url(self._redis) as redis:
            return {
                path.decode(): json.loads(value)
                for workflow_type in workflow_types
                for path, value in redis.hgetall(redis_key(self.tenant, workflow_type)).items()
                if not path.startswith(b"!")
            }

    def counted(self, *workflow_types: str) -> dict[str, int]:
        """Outcomes by context path, of contexts that are not deleted."""
        return {
            path: value["outcomes"]
            for path, value in self.served(*workflow_types).items()
            if not value.get("deleted")
        }

    def remembered(self) -> int:
        """The log epoch that Redis knows."""
        with Redis.from_url(self._redis) as redis:
            return int(redis.get(REDIS_KEY) or 0)

    def until(self, condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """Wait until it holds; workers that are stuck or killed meanwhile are started again."""
        until(condition, seconds, 0.1, meanwhile=self._check, seen=self._seen)

    def _seen(self) -> object:
        return self.ids(), self.query(_STATE)


@pytest.fixture
def site(broker: str, tmp_path: Path) -> Iterator[Site]:
    """A log of the test's own, on which it starts workers of several hosts."""
    with Stack(stack_config(data=tmp_path / "stack", kafka=broker)) as stack:
        made = Site(stack.addresses, asyncio.run(prepare(stack.addresses, PARTITIONS)), tmp_path)
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture
def read_topic(system: System) -> Callable[..., list[Any]]:
    """Read a topic to its end, each partition in its order."""
    return partial(read_whole_topic, system.addresses.kafka)


@pytest.fixture
def stored(system: System, tenant: str) -> Stored:
    at = system.addresses
    return Stored(at.postgres, at.redis, tenant, system.check)


@pytest.fixture
def stored_at() -> Callable[[Mapping[str, Any], str], Stored]:
    """The same of another system: its addresses as `up --json` prints them, and its `check`."""
    return lambda at, tenant, check=None: Stored(at["postgres"], at["redis"], tenant, check)


def judged(tenant: str, workflow_type: str = "refund", **more: Any) -> Event:
    """A completion that is an outcome at once."""
    event: Event = {
        "id": new_id(),
        "event_type": "task_complete",
        "tenant": tenant,
        "workflow_type": workflow_type,
        "workflow_id": "w1",
        "timestamp": time.time_ns() // 1_000_000,
        "confidence": 0.95,
        "data": {
            "context": {"domain": "retail"},
            "prediction": {"was_correct": True, "speculated": True},
        },
    }
    return {**event, **more}


@pytest.fixture(name="judged")
def _judged() -> Callable[..., Event]:
    return judged


def paths_of(event: Mapping[str, Any]) -> list[str]:
    """The oracle's own reading of context paths, coarse to fine."""
    paths = [f"workflow_type={event['workflow_type']}"]
    domain = event.get("data", {}).get("context", {}).get("domain")
    for name, value in (("domain", domain), ("user_id", event.get("user_id"))):
        if value is not None:
            paths.append(f"{paths[-1]}/{name}={value}")
    return paths


@pytest.fixture(name="paths_of")
def _paths_of() -> Callable[[Mapping[str, Any]], list[str]]:
    return paths_of


@pytest.fixture
def counts() -> Callable[[Sequence[Event]], dict[str, int]]:
    """How many outcomes each context must have, all `events` being judged completions."""
    return lambda events: dict(Counter(path for event in events for path in paths_of(event)))


# --- processes ---


class Headstart(Protocol):
    def __call__(
        self, *arguments: str | Path, stdin: str | None = None, seconds: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def headstart(tmp_path: Path) -> Headstart:
    """Run a command to its end, where no data directory is found by chance."""

    def run(
        *arguments: str | Path, stdin: str | None = None, seconds: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        return run_command(*arguments, folder=tmp_path, stdin=stdin, seconds=seconds)

    return run


@dataclass
class Running:
    """A command that runs beside the test; its output goes to files."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    files: list[IO[bytes]] = field(default_factory=list)

    def until(self, text: str, seconds: float = PATIENCE_S) -> str:
        """Wait until it prints `text` on either stream; return all of stdout."""

        def written() -> bool:
            found = text in self.out.read_text() + self.err.read_text()
            assert found or self.process.poll() is None, self.err.read_text()
            return found

        until(written, seconds, seen=lambda: f"no {text!r} in: {self.err.read_text()}")
        return self.out.read_text()

    def end(self, number: signal.Signals, seconds: float = PATIENCE_S) -> int:
        """Signal it; return its exit code, which must come in time."""
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def descendants(self) -> dict[str, int]:
        """Process ids of its children, and theirs."""
        shown = subprocess.run(
            ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
        )
        parents = dict(tuple(map(int, line.split())) for line in shown.stdout.splitlines())
        found, last = set(), {self.process.pid}
        while last := {pid for pid, parent in parents.items() if parent in last}:
            found |= last
        return {str(pid): pid for pid in found}


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start a command beside the test; whatever happens, it is ended with it."""
    started: list[Running] = []

    def start(*arguments: str | Path, environment: Mapping[str, str] = {}) -> Running:
        stem = tmp_path / f"launched-{len(started)}"
        out, err = stem.with_suffix(".out"), stem.with_suffix(".err")
        files = [out.open("wb"), err.open("wb")]
        process = subprocess.Popen(
            command_line(*arguments),
            cwd=tmp_path,
            env={**ENVIRONMENT, **environment},
            stdin=subprocess.DEVNULL,
            stdout=files[0],
            stderr=files[1],
        )
        started.append(Running(process, out, err, list(files)))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()  # its children end with it
        each.process.wait()
        for file in each.files:
            file.close()


@pytest.fixture
def write_events(tmp_path: Path) -> Callable[[Sequence[Event]], Path]:
    """Write events to a JSONL file."""

    def write(events: Sequence[Event]) -> Path:
        path = tmp_path / f"{new_id()}.jsonl"
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        return path

    return write
