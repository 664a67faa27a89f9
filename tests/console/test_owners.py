"""Records that wait in a partition without an owner in the group are reported."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from console.inspection.doctor.findings import Finding
from console.inspection.doctor.run import diagnose
from console.inspection.lag import GroupLag
from console.inspection.partition_owners import without_owner
from console.inspection.target import InspectionTarget
from topics.catalogue import EPISODES_GROUP, EVENTS
from topics.kafka.groups import GroupState, describe_groups

LAG = GroupLag(EPISODES_GROUP, EVENTS.name, {0: 0, 1: 4, 2: 5})


def messages(state: GroupState | None, lag: GroupLag = LAG) -> list[str]:
    states = {} if state is None else {lag.group: state}
    return [each.what for each in without_owner([lag], states)]


def test_a_group_without_members() -> None:
    (found,) = messages(GroupState(0))
    assert found == (
        "group headstart-episodes has no member: no worker takes in the 9 records of "
        "headstart.events that wait"
    )


def test_a_partition_that_no_member_owns() -> None:
    state = GroupState(2, {EVENTS.name: frozenset({0, 1})})
    (found,) = messages(state)
    assert found == (
        "no member of group headstart-episodes owns partition 2 of headstart.events, where "
        "5 records wait"
    )
    assert len(messages(GroupState(1, {"other": frozenset({1, 2})}))) == 1


@pytest.mark.parametrize(
    "state", [None, GroupState(1), GroupState(2, {EVENTS.name: frozenset({1, 2})})]
)
def test_owned_and_unknown_partitions_are_no_problem(state: GroupState | None) -> None:
    assert messages(state) == []


def test_no_waiting_records() -> None:
    assert messages(GroupState(0), GroupLag(EPISODES_GROUP, EVENTS.name, {0: 0})) == []


async def _send(kafka: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        await producer.send_and_wait(EVENTS.name, b"waits", partition=0)


async def _joined(kafka: str) -> GroupState:
    async with AIOKafkaConsumer(
        EVENTS.name, bootstrap_servers=kafka, group_id="joined-by-a-test"
    ) as consumer:
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=100)
        return (await describe_groups(kafka, ["joined-by-a-test"]))["joined-by-a-test"]


def test_group_members_from_the_broker(target: InspectionTarget) -> None:
    state = asyncio.run(_joined(target.kafka))
    assert state.members == 1
    assert state.owned in (None, {EVENTS.name: frozenset({0, 1, 2})})  # embedded, Apache


def group_findings(target: InspectionTarget) -> list[Finding]:
    return [each for each in asyncio.run(diagnose(target)) if each.check == "groups"]


def test_status_and_doctor_report_it(target: InspectionTarget, run: Any) -> None:
    assert group_findings(target) == []
    asyncio.run(_send(target.kafka))
    where = ("--kafka", target.kafka, "--postgres", target.postgres, "--redis", target.redis)
    ended = run("status", "--no-workers", "--json", *where)
    assert ended.returncode == 1
    reasons = json.loads(ended.stdout)["reasons"]
    assert any("group headstart-episodes has no member" in each for each in reasons)
    found = group_findings(target)
    assert [each.level for each in found] == ["error", "error"]
    assert "group headstart-thresholds has no member" in found[1].what
    assert "`headstart worker thresholds`" in found[1].remedy
