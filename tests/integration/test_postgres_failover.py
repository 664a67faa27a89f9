"""A system whose Postgres dies in mid-transaction: a replica that lags takes over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from deploy.system import System
from tests.integration.event_load import Load
from tests.integration.topic_records import read_whole_topic
from tests.patience import PATIENCE_S, until
from tests.secured import stack_config
from tests.standbys import PostgresPair
from topics.catalogue import THRESHOLDS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.any_broker,
    pytest.mark.plain_only(reason="the Postgres pair of the test has no TLS"),
]

Event = dict[str, Any]
SOME = 150
"""Events that are waited for at each step."""
RUNS = 40
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'headstart' AND wait_event_type = 'Lock'
"""


@pytest.fixture
def own(
    broker: str, postgres_pair: PostgresPair, messages: list[str], tmp_path: Path
) -> Iterator[System]:
    config = stack_config(data=tmp_path / "own", kafka=broker, postgres=postgres_pair.url)
    with System(config, partitions=2, echo=messages.append) as running:
        yield running


@pytest.fixture
def load(own: System, judged: Callable[..., Event], tenant: str) -> Iterator[Load]:
    def new(number: int) -> Event:
        name = f"run-{number % RUNS}"
        return judged(tenant, f"type-{number % 3}", workflow_id=f"{name} of {number % 3}")

    made = Load(own.addresses.kafka, new)
    yield made
    made.end()


def test_a_lagging_replica_takes_over_in_mid_transaction(
    own: System,
    load: Load,
    postgres_pair: PostgresPair,
    messages: list[str],
    headstart: Any,
    tenant: str,
) -> None:
    pair, given = postgres_pair, len(messages)

    def read(dsn: str, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(dsn) as connection:
            return connection.execute(query.encode(), [tenant]).fetchall()

    def stored(dsn: str) -> int:
        count: int = read(dsn, "SELECT count(*) FROM episodic_events WHERE tenant = %s")[0][0]
        return count

    def wait(condition: Callable[[], bool]) -> None:
        until(condition, meanwhile=own.check, seen=lambda: messages[given:])

    wait(lambda: stored(pair.primary.dsn) >= SOME)
    pair.wait_replicated()
    pair.cut()
    replicated = stored(pair.replica.dsn)
    wait(lambda: stored(pair.primary.dsn) >= replicated + SOME)
    with closing(psycopg.connect(pair.primary.dsn)) as holder:
        # Sinks have copied their rows, and wait for the lock to store the offset with them.
        holder.execute("LOCK TABLE sink_offsets IN SHARE MODE")
        wait(lambda: pair.primary.ask(WAITING) >= 1)
        pair.primary.kill()
    pair.promote()
    assert stored(pair.replica.dsn) >= replicated
    emitted = len(load.events)
    wait(lambda: len(load.events) >= emitted + SOME)
    events = load.end()
    wait(lambda: stored(pair.replica.dsn) >= len(events))
    assert own.drain(PATIENCE_S)

    at = pair.replica.dsn
    ids = read(at, "SELECT id::text FROM episodic_events WHERE tenant = %s")
    assert sorted(row[0] for row in ids) == sorted(event["id"] for event in events)
    history = read(at, 'SELECT path, "offset" FROM threshold_history WHERE tenant = %s')
    assert sorted(history) == sorted(announced(own.addresses.kafka, tenant))
    runs = {event["workflow_id"] for event in events}
    episodes = "SELECT workflow_id, events FROM episodes WHERE tenant = %s"
    wait(lambda: sum(row[1] for row in read(at, episodes)) == len(events))
    assert {row[0] for row in read(at, episodes)} == runs
    assert not messages[given:], "no worker ended"
    logs = "".join(each.read_text() for each in (own.data / "workers" / "logs").glob("*"))
    assert "sink.transactions_lost" in logs
    assert "worker.failed" not in logs
    look_around(own, pair, headstart)


def announced(kafka: str, tenant: str) -> list[tuple[str, int]]:
    """Return path and offset of all values of a tenant in the topic of thresholds."""
    values = [
        json.loads(record.value)
        for record in read_whole_topic(kafka, THRESHOLDS.name)
        if record.value is not None
    ]
    return [(each["path"], each["offset"]) for each in values if each["tenant"] == tenant]


def look_around(own: System, pair: PostgresPair, headstart: Any) -> None:
    """`verify` and `doctor` find nothing but the host that is away."""
    where = ("--kafka", own.addresses.kafka, "--postgres", pair.url, "--redis", own.addresses.redis)
    verified = headstart("verify", *where, "--json", "--caught-up")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    doctor = headstart("doctor", *where, "--data", own.data, "--json")
    found = [each for each in json.loads(doctor.stdout)["findings"] if each["check"] == "postgres"]
    said = {each["what"]: each["level"] for each in found}
    primary, replica = (f"127.0.0.1:{each.port}" for each in (pair.primary, pair.replica))
    assert said.pop(f"{primary}: nothing listens there; it cannot take over") == "warning"
    assert f"{replica} takes writes, and a commit waits for no standby" in said
    assert set(said.values()) == {"ok"}, found
