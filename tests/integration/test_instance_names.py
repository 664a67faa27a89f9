"""Two workers with one instance name: the second stays out and says why; the first goes on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from agents.consumer.epoch_assignor import EpochRoundRobin
from agents.instance_name import Membership
from agents.place import place_id
from headstart.connections.kafka_connections import client_options
from tests.integration.hosts import Site
from tests.secured import everything_allowed
from topics.catalogue import EPISODES_GROUP, EVENTS, THRESHOLDS_GROUP
from topics.kafka.groups import GroupMember, group_members

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Event = dict[str, Any]


def members(site: Site, group: str) -> list[GroupMember]:
    return asyncio.run(group_members(site.addresses.kafka, group))


def test_the_second_of_a_name_stays_out_and_the_first_goes_on(
    site: Site, tenant: str, judged: Callable[..., Event]
) -> None:
    first = site.start("first", "thresholds", "episodes", "history", "predictions")
    site.until(lambda: first.ready and first.spared)
    before = members(site, THRESHOLDS_GROUP)
    second = site.run("worker", "thresholds", host="second")
    assert second.returncode == 1
    (line,) = [each for each in second.stderr.splitlines() if each.startswith("error: ")]
    assert "instance name 0 is in the group headstart-thresholds" in line
    assert "(host " in line
    assert "--instance NAME" in line
    assert members(site, THRESHOLDS_GROUP) == before
    site.emit(judged(tenant) for _ in range(50))
    site.until(lambda: site.lag() == 0)
    assert first.restarts == 0


def test_status_and_doctor_name_it_with_the_fix(site: Site) -> None:
    first = site.start("first", "thresholds")
    site.until(lambda: first.ready)
    site.start("second", "thresholds")
    site.until(lambda: any("instance name 0 is in the group" in each for each in site.messages))
    for command in ("status", "doctor"):
        ended = site.run(command, host="second")
        assert ended.returncode == 1
        assert "instance name 0 is in the group headstart-thresholds" in ended.stdout
        assert "--instance NAME or HEADSTART_INSTANCE" in ended.stdout


def test_a_worker_that_starts_again_gets_its_place_at_once(site: Site) -> None:
    worker = site.start("first", "episodes")
    site.until(lambda: worker.ready)
    killed = worker.pids["episodes"]
    (before,) = members(site, EPISODES_GROUP)
    os.kill(killed, signal.SIGKILL)
    site.until(lambda: worker.pids["episodes"] != killed and worker.ready)
    (after,) = members(site, EPISODES_GROUP)
    assert after.client_id == before.client_id
    assert "has it, or has ended" not in site.log("first", "episodes-0")


def test_of_a_directory_and_its_copy_one_stays_and_one_is_refused_by_name(site: Site) -> None:
    original = site.start("first", "episodes")
    site.until(lambda: original.ready)
    shutil.copytree(site.folder / "first", site.folder / "second")
    copy = site.start("second", "episodes")
    site.until(lambda: copy.ready)
    site.until(lambda: len(site.messages) > 1)
    put_out, refused, *_ = site.messages
    assert "ended with exit code 1: another worker with the instance name 0" in put_out
    assert "ended with exit code 1: another worker (host " in refused
    assert copy.ready
    assert copy.restarts == 0


@asynccontextmanager
async def member(
    site: Site, static_id: str, client_id: str = "another", session_s: int = 10
) -> AsyncIterator[AIOKafkaConsumer]:
    """A member of another program: it takes the name without asking whether it is in use."""
    consumer = AIOKafkaConsumer(
        EVENTS.name, bootstrap_servers=site.addresses.kafka, **client_options(),
        group_id=EPISODES_GROUP,
        group_instance_id=static_id, partition_assignment_strategy=[EpochRoundRobin(None)],
        enable_auto_commit=False, session_timeout_ms=session_s * 1_000, client_id=client_id,
    )  # fmt: skip
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


@pytest.fixture
def allowed(site: Site) -> Iterator[None]:
    """May join groups, as the programs that this process plays."""
    with everything_allowed(site.folder / "stack"):
        yield


@pytest.mark.usefixtures("allowed")
def test_a_worker_that_is_put_out_ends_with_the_reason(site: Site) -> None:
    """Two that start at the same moment both find the name free; one of them is put out."""
    worker = site.start("first", "episodes")
    site.until(lambda: worker.ready)

    async def take() -> None:
        async with member(site, f"{EPISODES_GROUP}-0"):
            await asyncio.to_thread(site.until, lambda: worker.restarts or site.messages)

    asyncio.run(take())
    (line, *_) = site.messages
    assert "ended with exit code 1: another worker" in line
    assert "instance name 0 is in the group headstart-episodes" in line
    site.until(lambda: worker.ready)  # the other has gone


@pytest.mark.usefixtures("allowed")
def test_a_member_that_has_ended_is_waited_for(site: Site) -> None:
    async def end_without_leaving() -> None:
        async with member(site, f"{EPISODES_GROUP}-0"):
            pass  # a static member does not leave

    asyncio.run(end_without_leaving())
    assert members(site, EPISODES_GROUP)
    worker = site.start("first", "episodes")
    site.until(lambda: worker.ready)
    assert worker.restarts == 0


@pytest.mark.usefixtures("allowed")
def test_the_place_of_a_predecessor_is_given_up_at_once(site: Site) -> None:
    own = Membership(site.addresses.kafka, EPISODES_GROUP, "0", site.folder)

    async def body() -> None:
        async with member(site, own.static_id, own.client_id, session_s=600):
            pass  # a static member does not leave
        assert not await replace(own, data=site.folder / "elsewhere").leave()
        assert len(await group_members(own.kafka, own.group)) == 1
        assert await own.leave()
        assert await group_members(own.kafka, own.group) == []

    asyncio.run(body())


@pytest.mark.usefixtures("allowed")
def test_a_directory_that_is_moved_is_the_same_place(site: Site) -> None:
    """As a volume is that a new container has mounted."""
    data = site.folder / "first" / "workers" / "episodes-0"
    own = Membership(site.addresses.kafka, EPISODES_GROUP, "0", data)
    client_id = own.client_id

    async def end_without_leaving() -> None:
        async with member(site, own.static_id, client_id, session_s=600):
            pass

    asyncio.run(end_without_leaving())
    (site.folder / "first").rename(site.folder / "second")
    worker = site.start("second", "episodes")
    site.until(lambda: worker.ready)
    assert worker.restarts == 0
    (found,) = members(site, EPISODES_GROUP)
    assert found.client_id == client_id


@pytest.mark.usefixtures("allowed")
def test_a_predecessor_in_another_container_or_of_an_earlier_version_is_recognised(
    site: Site,
) -> None:
    own = Membership(site.addresses.kafka, EPISODES_GROUP, "0", site.folder)
    elsewhere = f"{own.static_id}.another.host.{place_id(site.folder)}"

    async def body() -> None:
        for client_id in (elsewhere, own.earlier_client_id):
            async with member(site, own.static_id, client_id, session_s=600):
                pass
            (found,) = await group_members(own.kafka, own.group)
            assert own.place_of(found).startswith("host ")
            assert await own.leave()

    asyncio.run(body())
