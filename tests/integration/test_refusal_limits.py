"""Nothing but bad records stops the workers, and a restart does not pass the limit."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from headstart.connections.kafka_connections import new_producer
from headstart.keys import event_key
from tests.patience import PATIENCE_S, until
from tests.secured import stack_config
from topics.catalogue import DEAD_LETTERS, EPISODES_GROUP, EVENTS, THRESHOLDS_GROUP
from topics.dead_letters.messages import parse_dead_letter
from topics.kafka.reader import read_records, topic_state

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RUN = "HEADSTART_REFUSED_RUN"


def emit(system: System, tenant: str, *values: bytes) -> None:
    async def run() -> None:
        async with new_producer(system.addresses.kafka) as producer:
            key = event_key(tenant, "refund")
            for value in values:
                await producer.send_and_wait(EVENTS.name, value, key=key)

    asyncio.run(run())


def letters(system: System) -> Counter[str | None]:
    """How many dead letters each group has."""

    async def run() -> Counter[str | None]:
        kafka = system.addresses.kafka
        state = await topic_state(kafka, DEAD_LETTERS.name)
        records = read_records(kafka, DEAD_LETTERS.name, state.begin, state.end)
        return Counter([parse_dead_letter(record).group async for record in records])

    return asyncio.run(run())


def until_stopped(system: System, output: list[str], times: int) -> None:
    """Wait until both workers ended at the limit so many times."""

    def stopped() -> bool:
        return all(stops(output, name) >= times for name in ("episodes", "thresholds"))

    until(stopped, pause_s=0.1, meanwhile=system.check, seen=lambda: output)


def stops(output: list[str], name: str) -> int:
    why = f"worker {name} ended with exit code 65 (too much is refused)"
    return sum(line.startswith(why) for line in output)


def test_a_run_of_bad_records_stops_both_workers_until_the_limit_is_raised(
    broker: str,
    tenant: str,
    judged: Callable[..., dict[str, Any]],
    stored_at: Callable[..., Any],
    tmp_path: Path,
) -> None:
    output: list[str] = []
    good = [judged(tenant) for _ in range(3)]
    first, second, last = (json.dumps(event).encode() for event in good)
    bad = json.dumps([judged(tenant, confidence=7) for _ in range(5)]).encode()
    system = System(
        stack_config(data=tmp_path, kafka=broker),
        partitions=1,
        environment={RUN: "3"},
        echo=output.append,
    )
    with system:
        at = {"postgres": system.addresses.postgres, "redis": system.addresses.redis}
        stored = stored_at(at, tenant)
        for value in (first, bad, bad):  # five bad events a record, and no run of three records
            emit(system, tenant, value)
            assert system.drain(PATIENCE_S)
        before = {EPISODES_GROUP: 10, THRESHOLDS_GROUP: 10}
        assert letters(system) == before

        emit(system, tenant, bad, bad, second, last)
        until_stopped(system, output, times=2)
        assert letters(system) == before, "no restart passed the limit"
        assert stored.ids() == [good[0]["id"]]
        assert stored.counted("refund")["workflow_type=refund"] == 1
        logs = "".join(log.read_text() for log in (tmp_path / "workers" / "logs").iterdir())
        assert "3 records in a row of partition 0 of headstart.events are refused" in logs
        offsets = re.search(
            r"offsets (\d+), (\d+), (\d+); the last because 'confidence: must be", logs
        )
        assert offsets is not None
        first_offset, second_offset, _ = map(int, offsets.groups())
        assert 0 < first_offset < second_offset, "clock records may stand between"

        assert system.supervisor is not None
        system.supervisor.stop()
        system._environment[RUN] = "0"
        system._start_workers(system.addresses)
        assert system.drain(PATIENCE_S)
        assert letters(system) == {EPISODES_GROUP: 20, THRESHOLDS_GROUP: 20}
        assert stored.ids() == sorted(event["id"] for event in good)
        assert stored.counted("refund")["workflow_type=refund"] == 3
