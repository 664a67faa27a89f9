"""Every worker runs with the login of its own process, which has no other right."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

import psycopg
import pytest
from redis import Redis

from deploy.local import Addresses
from headstart import Thresholds
from headstart.connections.kafka_security import KafkaSecurity
from headstart.connections.own_security import use_security
from headstart.kafka_producer import start_producer
from headstart.keys import model_key, redis_key
from headstart.prediction.interface import ToolCall
from headstart.shared_learning.shared_learning import SharedLearning
from tests.patience import until
from tests.processes import ENVIRONMENT, command_line, run_command
from tests.secure.identities import SPANS_TOPIC, Identities
from tests.secure.judged_events import judged
from topics.catalogue import DEAD_LETTERS
from topics.kafka.reader import topic_state

WORKERS: Final = ("episodes", "thresholds", "history", "predictions", "memory")
EVENTS: Final = 20


@pytest.fixture(scope="module")
def outputs(
    identities: Identities, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Path]]:
    """The files with the output of each worker, while all run."""
    folder = tmp_path_factory.mktemp("limited")
    found = {name: folder / f"{name}.log" for name in WORKERS}
    processes = []
    with ExitStack() as files:
        for name, output in found.items():
            file = files.enter_context(output.open("wb"))
            processes.append(started(identities, name, folder, file))
        yield found
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(60)


def started(
    identities: Identities, name: str, folder: Path, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    environment = {**ENVIRONMENT, **identities.variables(name), "HEADSTART_DATA": str(folder)}
    return subprocess.Popen(
        command_line("worker", name), env=environment, stdout=output, stderr=output, cwd=folder
    )


def test_events_are_stored_learned_and_noted(
    identities: Identities,
    plain: Addresses,
    outputs: dict[str, Path],
    tenant: str,
    tmp_path: Path,
) -> None:
    environment = identities.variables("executor") | {"HEADSTART_SPOOL": str(tmp_path / "spool")}
    emitted = run_command(
        "emit", "-", folder=tmp_path, environment=environment,
        stdin="\n".join(json.dumps(judged(tenant)) for _ in range(EVENTS)),
    )  # fmt: skip
    assert emitted.returncode == 0, emitted.stderr
    decide(identities, tenant, tmp_path)

    def reached() -> dict[str, bool]:
        with psycopg.connect(plain.postgres) as postgres, Redis.from_url(plain.redis) as redis:
            served = redis.hget(redis_key(tenant, "refund"), "workflow_type=refund")
            return {
                "episodes": rows(postgres, "episodic_events", tenant) == EVENTS,
                "thresholds": served is not None and json.loads(served)["outcomes"] == EVENTS,
                "history": rows(postgres, "threshold_history", tenant) > 0,
                "predictions": redis.exists(model_key(tenant, "refund")) == 1,
                "memory": rows(postgres, "episodes", tenant) > 0,
            }

    until(lambda: all(reached().values()), seen=lambda: (reached(), logs(outputs)))
    with Thresholds(identities.redis("executor")) as thresholds:
        assert thresholds.get(workflow_type="refund", tenant=tenant).outcomes == EVENTS
    checked = run_command(
        "verify", "--json", folder=tmp_path, environment=identities.variables("operator")
    )
    assert checked.returncode == 0, checked.stderr
    said = logs(outputs)
    assert "AuthorizationFailed" not in said
    assert "NOPERM" not in said
    assert "permission denied" not in said


def rows(connection: psycopg.Connection[tuple[int]], table: str, tenant: str) -> int:
    query = f"SELECT count(*) FROM {table} WHERE tenant = %s"
    row = connection.execute(query.encode(), [tenant]).fetchone()
    return row[0] if row else 0


def logs(outputs: dict[str, Path]) -> str:
    return "\n".join(f"{name}: {path.read_text()[-1500:]}" for name, path in outputs.items())


def decide(identities: Identities, tenant: str, folder: Path) -> None:
    """Send the decisions of one run, with the login of an executor."""
    use_security(identities.security("executor"))
    with SharedLearning(
        identities.kafka, identities.redis("executor"), hash_key=b"a secret of the tests",
        spool=folder / "decisions", shipper="thread",
    ) as shared:  # fmt: skip
        run = shared.predictor("refund", tenant).run(user_id="somebody")
        run.user("refund order W1")
        run.guess()
        run.calls([ToolCall("find_order", {"order_id": "W1"})])
        run.result("find_order", {"total": 1})
        run.guess()
        run.calls([])
        shared.flush(60.0)


def test_the_worker_of_spans_reads_its_topic_only(identities: Identities, tmp_path: Path) -> None:
    """It joins its group, and sends what is no span to the dead letters."""
    internal = identities.internal

    async def send() -> int:
        producer = await start_producer(internal)
        try:
            await producer.send_and_wait(SPANS_TOPIC, b"no span")
        finally:
            await producer.stop()
        return await letters()

    async def letters() -> int:
        return sum((await topic_state(internal, DEAD_LETTERS.name)).end.values())

    use_security(KafkaSecurity())
    before = asyncio.run(send())
    output = tmp_path / "spans.log"
    with output.open("wb") as file:
        process = started(identities, "spans", tmp_path, file)
        try:
            until(lambda: asyncio.run(letters()) > before, seen=output.read_text)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    assert "AuthorizationFailed" not in output.read_text()
