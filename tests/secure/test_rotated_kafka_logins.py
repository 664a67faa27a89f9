"""Running workers and a running emitter live through changed logins at Kafka.

The broker's side is changed first, and all connections are ended; the files follow some seconds
later, one by one. Nothing is lost, nothing is counted twice, and no worker ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis

from deploy.local import Addresses
from deploy.supervisor import Supervisor
from headstart.keys import redis_key
from tests.integration.event_load import Load
from tests.patience import until
from tests.processes import run_command
from tests.secure.broker import Listeners
from tests.secure.certificates import Certificates
from tests.secure.judged_events import judged
from tests.secure.rotating_kafka import OtherAuthority, Passwords, Rotating

STALLED = "EventLoopStalled"
"""What ends a worker that got no CPU for a session, as on a busy machine; it is started again."""
SOME = 50
"""Events that are waited for at each step."""
ROTATIONS = 2
WORKERS = ("episodes", "thresholds", "history", "predictions")


@pytest.fixture(params=[Passwords, OtherAuthority], ids=["passwords", "certificates"])
def rotating(
    request: pytest.FixtureRequest,
    listeners: Listeners,
    certificates: Certificates,
    tmp_path: Path,
) -> Rotating:
    made: Rotating = request.param(listeners, certificates, tmp_path)
    return made


@pytest.fixture
def settings(rotating: Rotating, plain: Addresses, tmp_path: Path) -> dict[str, str]:
    return {
        "HEADSTART_KAFKA": rotating.kafka, "HEADSTART_KAFKA_CONFIG": str(rotating.config),
        "HEADSTART_POSTGRES": plain.postgres, "HEADSTART_REDIS": plain.redis,
        "HEADSTART_DATA": str(tmp_path / "host"), "HEADSTART_INSTANCE": "rotation",
        "HEADSTART_MEMORY": "false",
    }  # fmt: skip


@pytest.fixture
def workers(settings: dict[str, str], tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path / "host" / "workers", settings, WORKERS)
    made.start()
    yield made
    made.stop()


def test_changed_logins_lose_nothing_and_end_no_worker(
    rotating: Rotating,
    plain: Addresses,
    settings: dict[str, str],
    workers: Supervisor,
    tenant: str,
    tmp_path: Path,
) -> None:
    messages: list[str] = []

    def stored() -> list[str]:
        with psycopg.connect(plain.postgres) as connection:
            found = connection.execute(
                "SELECT id::text FROM episodic_events WHERE tenant = %s", [tenant]
            )
            return [row[0] for row in found.fetchall()]

    def learned() -> int:
        with Redis.from_url(plain.redis) as redis:
            value = redis.hget(redis_key(tenant, "refund"), "workflow_type=refund")
            return int(json.loads(value)["outcomes"]) if value else 0

    def reached(count: int) -> bool:
        return len(stored()) >= count and learned() >= count

    def wait(condition: Callable[[], Any]) -> None:
        until(
            condition,
            meanwhile=lambda: messages.extend(workers.check()),
            seen=lambda: (messages, len(stored()), learned()),
        )

    load = Load(
        rotating.kafka, lambda _: judged(tenant), pause_s=0.25, kafka_config=rotating.config
    )
    try:
        for _ in range(ROTATIONS):
            wait(partial(reached, len(stored()) + SOME))
            rotating.rotate()
        wait(partial(reached, len(load.events) + SOME))
    finally:
        events = load.end()
    wait(partial(reached, len(events)))
    assert sorted(stored()) == sorted(event["id"] for event in events)
    assert learned() == len(events)
    verified = run_command("verify", "--json", "--caught-up", folder=tmp_path, environment=settings)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert not [each for each in messages if STALLED not in each], "no worker ended"
    logs = "".join(each.read_text() for each in (tmp_path / "host/workers/logs").glob("*"))
    assert not [secret for secret in rotating.secrets if secret in logs]
