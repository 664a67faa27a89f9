"""Transactional producers on Apache Kafka: what was committed counts, and markers are no lag."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from console.inspection.doctor.broker import check_broker
from deploy.system import System
from headstart.connections.kafka_connections import new_producer
from headstart.keys import event_key
from processing.worker_report import REPORT_FILE, Report, decode_report
from tests.patience import PATIENCE_S, STALLED, until
from tests.secured import everything_allowed, stack_config
from topics.catalogue import COMMANDS, DEAD_LETTERS, EPISODES_GROUP, EVENTS
from topics.kafka.groups import GroupState, describe_groups
from topics.kafka.reader import read_records, topic_state

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("java") and shutil.which("mvn")), reason="needs java and mvn"
    ),
]

Event = dict[str, Any]
STUCK_AFTER_S = 8.0
WORKERS = ("episodes", "thresholds", "history")


class Owned:
    """A system of this module's own, quick to take a worker for stuck."""

    def __init__(self, system: System, messages: list[str]) -> None:
        assert system.supervisor is not None
        self.system, self.supervisor, self.messages = system, system.supervisor, messages
        self.kafka = system.addresses.kafka

    def report(self, worker: str) -> Report:
        file = self.system.data / "workers" / f"{worker}-0" / REPORT_FILE
        report = decode_report(file.read_bytes())
        assert report is not None
        return report

    def stays(self, seconds: float = 1.5 * STUCK_AFTER_S) -> None:
        """Supervise it for longer than a worker may be suspended: none may be ended."""
        ends = time.monotonic() + seconds
        before = self.restarts
        while time.monotonic() < ends:
            self.system.check()
            assert self.restarts == before, self.messages
            time.sleep(0.2)

    @property
    def restarts(self) -> int:
        """How often a worker was started again, but for want of CPU."""
        stalled = sum(f"ended with exit code {STALLED}" in line for line in self.messages)
        return self.supervisor.restarts - stalled

    def nobody_lags(self) -> None:
        """Wait for the next look at the ends of the log: earlier messages do not count."""
        assert self.system.drain(PATIENCE_S)
        until(lambda: not any(sum(self.report(each).lag.values()) for each in WORKERS))


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owned]:
    messages: list[str] = []
    config = stack_config(data=tmp_path_factory.mktemp("transactions"), kafka="apache")
    environment = {"HEADSTART_STUCK_AFTER_S": str(STUCK_AFTER_S)}
    with System(config, partitions=2, environment=environment, echo=messages.append) as system:
        yield Owned(system, messages)


@pytest.fixture
def transaction(owned: Owned, tenant: str) -> Any:
    """A transaction of events that were sent; how it ends is the caller's."""
    with everything_allowed(owned.system.data) as security:
        pass  # only the login is needed

    @asynccontextmanager
    async def begun(
        values: Sequence[bytes], at_ms: int | None = None, topic: str = EVENTS.name
    ) -> AsyncIterator[Any]:
        producer = new_producer(
            owned.kafka, security, transactional_id=tenant, transaction_timeout_ms=600_000
        )
        await producer.start()
        try:
            await producer.begin_transaction()
            key = event_key(tenant, "refund")
            for value in values:
                await producer.send(topic, value, key=key, timestamp_ms=at_ms)
            await producer.flush()
            yield producer
        finally:
            await producer.stop()

    return begun


@pytest.fixture
def transact(transaction: Any) -> Callable[..., None]:
    """Send events in a transaction that is committed, or aborted."""

    async def run(values: Sequence[bytes], *, commit: bool) -> None:
        async with transaction(values) as producer:
            await (producer.commit_transaction() if commit else producer.abort_transaction())

    return lambda events, *more, commit: asyncio.run(
        run([*map(orjson.dumps, events), *more], commit=commit)
    )


@pytest.fixture
def stored(owned: Owned, stored_at: Callable[[dict[str, Any], str], Any], tenant: str) -> Any:
    return stored_at(vars(owned.system.addresses), tenant)


def ids(events: Sequence[Event]) -> list[str]:
    return sorted(event["id"] for event in events)


async def refused(kafka: str) -> list[bytes]:
    state = await topic_state(kafka, DEAD_LETTERS.name)
    records = read_records(kafka, DEAD_LETTERS.name, state.begin, state.end)
    return [record.value async for record in records]


def agrees(owned: Owned, headstart: Any) -> None:
    ended = headstart("verify", "--data", owned.system.data)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_only_what_was_committed_counts_and_a_marker_at_the_end_is_no_lag(
    owned: Owned, transact: Any, stored: Any, judged: Any, counts: Any, headstart: Any, tenant: str
) -> None:
    committed = [judged(tenant) for _ in range(5)]
    aborted = [judged(tenant) for _ in range(50)]
    transact(committed[:2], commit=True)
    transact(aborted[:5], b"no JSON", commit=False)
    transact(committed[2:], commit=True)
    owned.nobody_lags()
    owned.stays()  # before a commit marker
    transact(aborted[5:], commit=False)
    owned.nobody_lags()
    owned.stays()  # before an abort marker
    assert stored.ids() == ids(committed)
    assert stored.counted("refund") == counts(committed)
    assert b"no JSON" not in asyncio.run(refused(owned.kafka))
    agrees(owned, headstart)
    tail = headstart("events", "tail", "--limit", "2", "--data", owned.system.data)
    shown = {json.loads(line)["id"] for line in tail.stdout.splitlines()}
    assert shown == {event["id"] for event in committed[-2:]}


def test_a_restart_before_a_marker_goes_on_behind_it(
    owned: Owned, transact: Any, stored: Any, judged: Any, counts: Any, tenant: str
) -> None:
    events = [judged(tenant) for _ in range(4)]
    transact(events[:2], commit=True)
    owned.nobody_lags()
    before = owned.supervisor.restarts
    for pid in owned.supervisor.pids.values():
        os.kill(pid, signal.SIGKILL)

    def back() -> bool:
        owned.system.check()
        return owned.supervisor.restarts >= before + 3 and owned.supervisor.ready

    until(back)
    owned.nobody_lags()
    transact(events[2:], commit=True)
    owned.nobody_lags()
    assert stored.ids() == ids(events)
    assert stored.counted("refund") == counts(events)


def test_an_open_transaction_is_named_and_ends_no_worker(
    owned: Owned, transaction: Any, stored: Any, judged: Any, counts: Any, headstart: Any,
    tenant: str,
) -> None:  # fmt: skip
    inside, behind = [judged(tenant) for _ in range(3)], judged(tenant)
    sent_at = time.time_ns() // 1_000_000 - 60_000

    def while_it_is_open() -> None:
        owned.nobody_lags()
        owned.stays()
        assert stored.ids() == []
        group = asyncio.run(describe_groups(owned.kafka, [EPISODES_GROUP]))[EPISODES_GROUP]
        assert group == GroupState(1, {EVENTS.name: frozenset({0, 1})})
        # Clock records may be held back, too.
        until(lambda: sum(owned.report("thresholds").held_back.values()) >= 4)
        status = headstart("status", "--data", owned.system.data)
        assert status.returncode == 1
        assert "a transaction open for" in status.stdout
        (found,) = [
            each
            for each in asyncio.run(check_broker(owned.kafka))[0]
            if each.check == "transactions"
        ]
        assert found.level == "error"
        held = re.search(r"holds (\d+) records back", found.what)
        assert held is not None
        assert int(held[1]) >= 4
        assert "kafka-transactions.sh" in found.remedy
        agrees(owned, headstart)
        rebuilt = headstart("rebuild", "--yes", "--wait", "8", "--data", owned.system.data)
        assert rebuilt.returncode == 1
        assert f"waiting for {EVENTS.name} partition" in rebuilt.stderr
        assert "a threshold worker waits for headstart.events partition" in rebuilt.stderr

    async def run() -> None:
        async with transaction([*map(orjson.dumps, inside)], sent_at) as producer:
            async with new_producer(owned.kafka) as other:
                value, key = orjson.dumps(behind), event_key(tenant, "refund")
                await other.send_and_wait(EVENTS.name, value, key=key)
            await asyncio.to_thread(while_it_is_open)
            await producer.commit_transaction()

    asyncio.run(run())
    owned.nobody_lags()
    assert stored.ids() == ids([*inside, behind])
    assert stored.counted("refund") == counts([*inside, behind])
    assert headstart("status", "--data", owned.system.data).returncode == 0
    agrees(owned, headstart)


def test_an_open_transaction_of_commands_delays_no_mode_and_is_named(
    owned: Owned, transaction: Any, headstart: Any, tenant: str
) -> None:
    data, sent_at = ("--data", owned.system.data), time.time_ns() // 1_000_000 - 60_000
    mode = ("config", "set", "mode")

    def holds() -> Any:
        got = headstart("config", "get", "mode", "--tenant", tenant, "--json", *data)
        return [each["stored"] for each in json.loads(got.stdout)["served"]]

    def while_it_is_open() -> None:
        for wanted in ("act", "off"):
            ended = headstart(*mode, wanted, "--tenant", tenant, "--json", *data)
            assert ended.returncode == 0, ended.stderr
            assert json.loads(ended.stdout)["served"] is True
            assert holds() == [wanted]
        status = headstart("status", *data)
        assert status.returncode == 1
        assert f"{COMMANDS.name} partition 0: a transaction open for" in status.stdout

    async def run() -> None:
        async with transaction([b"foreign"], sent_at, COMMANDS.name) as producer:
            await asyncio.to_thread(while_it_is_open)
            await producer.abort_transaction()

    asyncio.run(run())
    assert holds() == ["off"]
