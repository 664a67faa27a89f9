"""`headstart up --secure`: TLS, a login for each process, and nothing for others."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError

from deploy.local import StackError, readiness
from deploy.local.secure.credentials import USERS, Credentials
from deploy.local.secure.programs import require_programs
from headstart import AsyncThresholds, Thresholds
from headstart.connections.kafka_security import UNSECURED
from headstart.connections.redis_clients import connect
from headstart.keys import redis_key
from memory.retrieval.client import Memory
from tests.patience import PATIENCE_S, until
from tests.processes import ENVIRONMENT, command_line, command_lines, run_command
from tests.secure.attempts import Attempts
from tests.secure.judged_events import judged
from topics.catalogue import DECISIONS, EVENTS, THRESHOLDS

COUNT: Final = 20
UNCONFIRMED_S: Final = 3_600.0
"""How long a reader's answer holds without a query."""
OF_ANOTHER_BROKER: Final = {
    "HEADSTART_KAFKA_SASL_MECHANISM": "PLAIN",
    "HEADSTART_KAFKA_SASL_USERNAME": "other",
    "HEADSTART_KAFKA_SASL_PASSWORD": "canary-other-secret",
}
Variables = dict[str, str]


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """A data directory that the account of Postgres can reach, unlike pytest's folders."""
    try:
        require_programs()
    except StackError as error:
        pytest.skip(str(error))
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "data"


@pytest.fixture(scope="module")
def running(data: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts `headstart up --secure`, and ends it after the tests if it still runs."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str) -> subprocess.Popen[bytes]:
        output = data.parent / f"output-{len(started)}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                command_line("up", "--secure", "--data", data, "--partitions", "2", *options),
                env={**ENVIRONMENT, **OF_ANOTHER_BROKER},
                stdout=file,
                stderr=file,
                cwd=data.parent,
            )
        started.append(process)

        def says_so() -> bool:
            assert process.poll() is None, output.read_text()
            return "running; Ctrl-C stops it" in output.read_text()

        until(says_so, seen=output.read_text)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0


def variables(data: Path, process: str) -> Variables:
    """What a shell has after `. PROCESS.env`."""
    shown = subprocess.run(
        ["env", "-i", "sh", "-c", f". '{data}/secure/{process}.env' && env -0"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = (line.partition("=") for line in shown.stdout.split("\0"))
    return {name: value for name, _, value in lines if name.startswith("HEADSTART_")}


def stored(operator: Variables, tenant: str) -> int:
    with psycopg.connect(operator["HEADSTART_POSTGRES"]) as connection:
        row = connection.execute(
            "SELECT count(*) FROM episodic_events WHERE tenant = %s", [tenant]
        ).fetchone()
        return int(row[0]) if row else 0


def learned(executor: Variables, tenant: str) -> int:
    """The outcomes that the executor's own login reads."""
    with connect(executor["HEADSTART_REDIS"]) as redis:
        (value,) = redis.hmget(redis_key(tenant, "refund"), ["workflow_type=refund"])
        return int(json.loads(value)["outcomes"]) if value else 0


def test_from_emit_to_thresholds_with_the_login_of_an_executor(
    data: Path, running: Callable[..., subprocess.Popen[bytes]], tenant: str, tmp_path: Path
) -> None:
    process = running()
    executor, operator = variables(data, "executor"), variables(data, "operator")
    emitted = emit(executor, tenant, tmp_path, COUNT)

    def arrived() -> bool:
        assert process.poll() is None, (data.parent / "output-0").read_text()
        return stored(operator, tenant) == COUNT and learned(executor, tenant) == COUNT

    until(arrived, seen=lambda: (stored(operator, tenant), learned(executor, tenant)))

    def shown(*command: str) -> subprocess.CompletedProcess[str]:
        return run_command(*command, folder=tmp_path, environment=operator)

    verified = shown("verify", "--json")
    assert verified.returncode == 0, (verified.stdout, verified.stderr)
    until(lambda: shown("status").returncode == 0, seen=lambda: shown("status").stdout)
    # Without variables commands find the stack, and its operator's login, by its directory.
    at_data = run_command("verify", "--json", "--data", data, folder=tmp_path)
    assert at_data.returncode == 0, (at_data.stdout, at_data.stderr)
    assert json.loads(at_data.stdout)["events"] == json.loads(verified.stdout)["events"] == COUNT
    require_readers(executor, tenant, lambda: emit(executor, tenant, tmp_path, 1))
    require_refusals(executor)
    require_no_secrets(data, [emitted.stdout, emitted.stderr, verified.stdout, verified.stderr])
    end(process)

    authority = Credentials.opened(data).ca.read_bytes()
    refused = run_command("up", "--data", data, folder=tmp_path)
    assert refused.returncode == 1
    assert "was made with --secure: start with --secure" in refused.stderr
    again = running("--no-workers")
    assert Credentials.opened(data).ca.read_bytes() == authority
    assert variables(data, "executor") == executor
    assert stored(operator, tenant) == COUNT + 2
    assert learned(executor, tenant) == COUNT + 2
    assert asyncio.run(may_only_write_events(data, executor["HEADSTART_KAFKA"]))
    end(again)


def emit(
    executor: Variables, tenant: str, folder: Path, count: int
) -> subprocess.CompletedProcess[str]:
    """Emit outcomes with the login of an executor."""
    ended = run_command(
        "emit",
        "-",
        folder=folder,
        environment={**executor, "HEADSTART_SPOOL": str(folder / "spool")},
        stdin="\n".join(json.dumps(judged(tenant)) for _ in range(count)),
    )
    assert ended.returncode == 0, ended.stderr
    return ended


def require_readers(executor: Variables, tenant: str, emit_one: Callable[[], object]) -> None:
    """Every reader of the client works over TLS with an executor's own login.

    A threshold that changes within `UNCONFIRMED_S` can have come by subscription only.
    """
    place = {"workflow_type": "refund", "tenant": tenant}
    with Thresholds(executor["HEADSTART_REDIS"], timeout_s=5, staleness_s=UNCONFIRMED_S) as reader:
        assert reader.get(place).outcomes == COUNT
        assert reader.mode(tenant) == "act"
        emit_one()
        until(lambda: reader.get(place).outcomes == COUNT + 1, seen=reader.stats)
    asyncio.run(require_async_reader(executor["HEADSTART_REDIS"], place, emit_one))

    postgres = executor["HEADSTART_POSTGRES"]
    assert "sslmode=verify-full" in postgres
    sought: dict[str, Any] = {"mode": "exact", "context": {}, "workflow_type": "refund"}
    with Memory(postgres, tenant=tenant, embedders=(), timeout_s=PATIENCE_S) as memory:
        until(lambda: memory.search(**sought).episodes)
        found = memory.search(**sought)
        assert memory.reused(found) == "", "it is logged"
        assert not memory.search(**{**sought, "tenant": "another"}).episodes


async def require_async_reader(
    redis: str, place: Mapping[str, str], emit_one: Callable[[], object]
) -> None:
    async with AsyncThresholds(redis, timeout_s=5, staleness_s=UNCONFIRMED_S) as reader:
        before = (await reader.get(place)).outcomes
        await asyncio.to_thread(emit_one)
        async with asyncio.timeout(PATIENCE_S):
            while (await reader.get(place)).outcomes == before:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def require_refusals(executor: Variables) -> None:
    """No plain text, and no right of an executor beyond its own."""
    kafka = executor["HEADSTART_KAFKA"]
    with pytest.raises(Exception, match=r"closed|answer|Connection"):
        readiness.kafka(kafka, 3.0, UNSECURED)
    postgres = executor["HEADSTART_POSTGRES"]
    for changed in ({"sslmode": "disable"}, {"user": "postgres"}):
        with pytest.raises(psycopg.OperationalError, match=r"pg_hba\.conf|certificate"):
            psycopg.connect(make_conninfo(postgres, **changed)).close()
    denied = pytest.raises(psycopg.errors.InsufficientPrivilege)
    with psycopg.connect(postgres) as connection, denied:
        connection.execute("DELETE FROM episodic_events")
    redis = executor["HEADSTART_REDIS"]
    with Redis(port=urlsplit(redis).port or 0) as plain, pytest.raises(RedisConnectionError):
        plain.ping()
    with connect(redis) as limited, pytest.raises(NoPermissionError):
        limited.hset("headstart:thresholds:x", "a", "b")


async def may_only_write_events(data: Path, kafka: str) -> bool:
    """Whether Kafka limits an executor to what the table of rights says."""
    security = Credentials.opened(data).kafka("executor")
    async with Attempts(kafka, security) as attempts:
        for topic in (EVENTS, DECISIONS, THRESHOLDS):
            assert not await attempts.on_topic("Read", topic.name), topic.name
        assert not await attempts.on_cluster("Alter", EVENTS.name)
        return await attempts.on_topic("Write", EVENTS.name)


def require_no_secrets(data: Path, shown: list[str]) -> None:
    secrets = [Credentials.opened(data).password(identity) for identity in USERS]
    assert len(set(secrets)) == len(USERS)
    logs = [*data.glob("logs/*"), *data.glob("workers/logs/*"), data.parent / "output-0"]
    texts = [*shown, command_lines(), *(each.read_text(errors="replace") for each in logs)]
    for secret in secrets:
        assert not [text[:200] for text in texts if secret in text]
    private = [each for each in (data / "secure").rglob("*") if each.is_file()]
    for file in private:
        if file.suffix in ("", ".key", ".env") or "keystore" in file.name:
            assert file.stat().st_mode & 0o077 == 0, file
    assert (data / "secure").stat().st_mode & 0o077 == 0
    assert not (data / "kafka" / "scram.args").exists()


def test_a_directory_that_was_made_without_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    with pytest.raises(StackError, match="was made without --secure"):
        Credentials.opened(tmp_path)
    assert not (tmp_path / "secure").exists()


def test_one_line_names_the_packages_that_are_missing(tmp_path: Path) -> None:
    ended = run_command(
        "up", "--secure", "--data", tmp_path / "data", folder=tmp_path,
        environment={"PATH": str(tmp_path)},
    )  # fmt: skip
    [line] = [each for each in ended.stderr.splitlines() if each.startswith("error: ")]
    assert ended.returncode == 1
    assert "apt install openssl" in line
    assert "redis-server" in line


def test_addresses_of_other_services_are_wrong_usage(tmp_path: Path) -> None:
    ended = run_command("up", "--secure", "--kafka", "broker:9092", folder=tmp_path)
    assert ended.returncode == 2
    assert "--secure starts all three services itself" in " ".join(ended.stderr.split())


def test_the_worker_of_spans_has_no_login(tmp_path: Path) -> None:
    spans = {"HEADSTART_SPANS_TOPIC": "otlp_spans"}
    ended = run_command("up", "--secure", folder=tmp_path, environment=spans)
    assert ended.returncode == 2
    assert "unset HEADSTART_SPANS_TOPIC" in " ".join(ended.stderr.split())
