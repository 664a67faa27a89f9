"""Executors, shippers and the broker, killed: what emit() took arrives, in order, for good."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local import Addresses, Stack, StackConfig
from headstart.shipping.supervisor import ship_leftovers
from tests.client.spooling import Host, end, new_host
from tests.patience import until
from topics.epoch import ensure_topics

pytestmark = pytest.mark.integration

FORKING = """
import os, sys
import headstart
kafka, tenant = sys.argv[1:3]
emitter = headstart.Emitter(kafka)
fields = dict(event_type="task_complete", workflow_type="w", workflow_id="w", tenant=tenant)
def emit(count, first=0):
    for n in range(first, first + count):
        os.write(1, (emitter.emit(fields, n=n) + "\\n").encode())
emit(50)
children = []
for _ in range(3):
    child = os.fork()
    if not child:
        emit(50)
        emitter.close(90)
        os._exit(0)
    children.append(child)
emit(50, 50)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
emitter.close(90)
"""

LEAVING = """
import atexit, os, sys
import headstart
kafka, tenant = sys.argv[1:3]
emitter = headstart.Emitter(kafka)
fields = dict(event_type="task_complete", workflow_type="w", workflow_id="w", tenant=tenant)
def emit(n):
    os.write(1, (emitter.emit(fields, n=n) + "\\n").encode())
atexit.register(emit, 2)
emit(0)
emit(1)
"""


def kill_shipper(host: Host) -> int:
    shipper = host.shipper()
    assert shipper
    assert shipper not in {executor.process.pid for executor in host.executors}
    os.kill(shipper, signal.SIGKILL)
    return shipper


@pytest.mark.parametrize("mode", ["process", "thread", "none"])
def test_an_executor_killed_in_mid_burst_loses_nothing(host: Host, mode: str) -> None:
    host.mode = mode
    first = host.start(100_000)
    first.until(500)
    if mode == "process":  # before that it has started no shipper yet: the next one ships
        until(lambda: host.shipper() != 0)
    first.kill()
    if mode != "process":
        assert host.spools()  # no shipper is there
        host.drain()
    until(lambda: not host.spools())
    assert len(host.emitted()) >= 500
    host.check()


def test_an_executor_s_thread_ships_what_a_killed_one_left(host: Host) -> None:
    host.mode = "thread"
    first = host.start(100_000)
    first.until(500)
    second = host.start(2_000, pause=0.001)
    second.until(1)
    first.kill()  # it held the lock
    second.end()
    host.drain()
    host.check()


def test_a_shared_shipper_killed_during_a_burst_has_a_successor_at_once(host: Host) -> None:
    executor = host.start(12_000, pause=0.0005)
    before: set[int] = set()
    for count in (500, 2_000, 3_500):
        executor.until(count)
        until(lambda: host.shipper() not in {0, *before})
        before.add(kill_shipper(host))
    executor.end()
    assert host.shipper() not in before
    until(lambda: not host.spools())
    host.check()


def test_ten_executors_of_which_five_are_killed_share_one_shipper(host: Host) -> None:
    for number in range(10):
        host.start(100_000 if number < 5 else 300, pause=0.002)
    for executor in host.executors:
        executor.until(100)
    until(lambda: host.shipper() != 0)
    shipper = host.shipper()
    for executor in host.executors[:5]:
        executor.kill()
    for executor in host.executors[5:]:
        executor.end()
    assert host.shipper() == shipper
    until(lambda: not host.spools())
    assert host.check() == 0  # no shipper was killed: nothing was sent twice
    assert len({event["origin"][0] for event in host.log()}) == 10


def test_a_fork_opens_a_spool_of_its_own(host: Host) -> None:
    for mode in ("process", "thread"):
        host.mode = mode
        host.start(0, program=FORKING).end()
    until(lambda: not host.spools())
    host.check()
    log = host.log()
    assert len(log) == len(host.emitted()) == 2 * 250
    assert len({event["origin"][0] for event in log}) == 8


HUNDRED = """
import os, sys
import headstart
kafka, tenant = sys.argv[1:3]
emitter = headstart.Emitter(kafka, linger_s=0.05)
fields = dict(event_type="task_complete", workflow_type="w", workflow_id="w", tenant=tenant)
def produce():
    for n in range(20):
        os.write(1, (emitter.emit(fields, n=n) + "\\n").encode())
    emitter.close(90)
children = []
for _ in range(100):
    child = os.fork()
    if not child:
        status = 1
        try:
            produce()
            status = 0
        finally:
            os._exit(status)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_hundred_producers_that_begin_at_once_share_one_shipper(host: Host) -> None:
    host.start(0, program=HUNDRED).end()
    until(lambda: not host.spools())
    assert host.check() == 0
    assert len(host.emitted()) == 100 * 20
    assert len({event["origin"][0] for event in host.log()}) == 100


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_process_that_exits_without_closing_loses_nothing(host: Host, mode: str) -> None:
    host.mode = mode
    host.start(0, program=LEAVING).end()
    if mode == "thread":
        host.drain()
    until(lambda: not host.spools())
    assert sorted(event["n"] for event in host.log()) == [0, 1, 2]
    host.check()


def test_a_restored_directory_repeats_and_takes_no_position_twice(host: Host) -> None:
    host.mode = "none"
    executor = host.start(100_000)
    executor.until(300)
    executor.kill()
    copy = host.home / "copy"
    shutil.copytree(host.spool, copy, ignore=shutil.ignore_patterns("bell"))
    host.drain()
    shutil.rmtree(host.spool)
    copy.rename(host.spool)
    host.mode = "thread"
    host.start(100).end()
    host.drain()
    assert host.check() >= 300


NO_PROCESSES = """
import os, sys
import headstart
sys.executable = "/no/such/python"
emitter = headstart.Emitter(sys.argv[1])
fields = dict(event_type="task_complete", workflow_type="w", workflow_id="w", tenant=sys.argv[2])
os.write(1, emitter.emit(fields, n=0).encode())
emitter.close(90)
"""


def test_where_no_process_can_be_started_a_thread_ships(host: Host) -> None:
    host.start(0, program=NO_PROCESSES).end()
    assert host.check() == 0
    assert len(host.emitted()) == 1


NOWHERE = "127.0.0.1:1"


def test_events_for_a_broker_that_has_moved_go_to_the_given_address(host: Host) -> None:
    host.mode, host.wrong_kafka = "none", NOWHERE
    executor = host.start(100_000)
    executor.until(200)
    executor.kill()
    assert not ship_leftovers(host.spool, host.kafka)  # it would wait for the old address
    host.drain("--kafka", host.kafka)
    assert not host.spools()
    host.check()


def test_a_broker_that_is_away_delays_no_other_events(host: Host) -> None:
    host.wrong_kafka = NOWHERE
    stuck = host.start(50)
    stuck.until(50)
    host.wrong_kafka = None
    host.start(500).end()
    here = {event["id"] for event in host.log()}
    assert here == host.emitted() - set(stuck.ids())
    assert len(host.spools()) >= 1  # what waits for the other broker


@pytest.mark.apache
@pytest.mark.skipif(not (shutil.which("java") and shutil.which("mvn")), reason="needs java and mvn")
@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_broker_that_stops_and_starts_again(
    tmp_path: Path, tenant: str, mode: str, free_stack: Callable[[], Stack]
) -> None:
    with free_stack() as stack:
        kafka = stack.addresses.kafka
        asyncio.run(ensure_topics(kafka, partitions=4))
        host = new_host(kafka, tenant, tmp_path, mode)
        executor = host.start(4_000, pause=0.001)
        executor.until(500)
    try:
        executor.until(2_000)  # with no broker there
        with free_stack():
            executor.end()
            until(lambda: not host.spools())
            host.check()
            assert len(host.emitted()) == 4_000
    finally:
        end(host)


@pytest.fixture
def free_stack(tmp_path: Path, addresses: Addresses) -> Callable[[], Stack]:
    """An Apache Kafka of the test's own; the second one takes up the first one's log and port."""
    return lambda: Stack(
        StackConfig(
            data=tmp_path / "stack",
            kafka="apache",
            postgres=addresses.postgres,
            redis=addresses.redis,
        )
    )
