"""Members, assigned partitions and offsets of consumer groups, as the broker reports them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    KafkaError,
    NonEmptyGroup,
    for_code,
)
from aiokafka.protocol.admin import DeleteGroupsRequest
from aiokafka.protocol.group import LeaveGroupRequest

from headstart.connections.kafka_connections import new_consumer
from headstart.kafka_producer import BrokerUnreachable
from topics.kafka.admin import admin_client

_SETTLED: Final = "Stable"
_MEMBERLESS: Final = ("Empty", "Dead")


@dataclass(frozen=True)
class GroupState:
    """A consumer group that is not rebalancing.

    `owned`: assigned partitions by topic; None if the broker does not report them. The embedded
    broker does not, and also keeps members that have ended.
    """

    members: int
    owned: Mapping[str, frozenset[int]] | None = None


@dataclass(frozen=True)
class GroupMember:
    """One member of a consumer group. `host`: the address it connects from."""

    member_id: str
    client_id: str
    host: str


async def group_members(kafka: str, group: str) -> list[GroupMember]:
    """Return the members of a group in any state; none if it cannot be described at present.

    Raises `BrokerUnreachable`.
    """
    async with admin_client(kafka) as client:
        try:
            (answer,) = await client.describe_consumer_groups([group])
        except KafkaError:
            return []
    ((code, _name, _state_name, _type, _protocol, members, *_more),) = answer.groups
    return [] if code else [GroupMember(*member[:3]) for member in members]


async def remove_member(kafka: str, group: str, member_id: str) -> bool:
    """Have a group give the partitions of a member that has ended to others at once.

    Return whether the broker did. Raises `BrokerUnreachable`.
    """
    async with admin_client(kafka) as client:
        try:
            node = await client.find_coordinator(group)
            answer = await client._send_request(LeaveGroupRequest(group, member_id), node)
        except KafkaError:
            return False
    return not answer.error_code


async def describe_groups(kafka: str, groups: Iterable[str]) -> dict[str, GroupState]:
    """Return the state of each group that can be described. Raises `BrokerUnreachable`."""
    found = {}
    async with admin_client(kafka) as client:
        for group in groups:  # the embedded broker's response about several cannot be parsed
            try:
                (answer,) = await client.describe_consumer_groups([group])
            except KafkaError:  # the coordinator is moving, or access is denied
                continue
            ((code, _name, state, _type, _protocol, members, *_more),) = answer.groups
            if not code and (described := _state(state, members)) is not None:
                found[group] = described
    return found


def _state(state: str, members: Iterable[Any]) -> GroupState | None:
    if state in _MEMBERLESS:
        return GroupState(0)
    if state != _SETTLED:
        return None
    assignments = [member[-1] for member in members]
    if not any(assignments):
        return GroupState(len(assignments))
    owned: dict[str, set[int]] = {}
    for raw in filter(None, assignments):
        for topic, partitions in ConsumerProtocolMemberAssignment.decode(raw).assignment:
            owned.setdefault(topic, set()).update(partitions)
    kept = {topic: frozenset(partitions) for topic, partitions in owned.items()}
    return GroupState(len(assignments), kept)


async def committed_offsets(kafka: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Return a group's committed offset by partition, 0 if it has none.

    Raises `BrokerUnreachable` if the broker's ACLs refuse the group.
    """
    consumer = new_consumer(kafka, group_id=group, enable_auto_commit=False)
    try:
        await consumer.start()
        consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        return {
            partition: await consumer.committed(TopicPartition(topic, partition)) or 0
            for partition in range(partitions)
        }
    except GroupAuthorizationFailedError as error:
        raise BrokerUnreachable(kafka, error) from error
    finally:
        await consumer.stop()


async def delete_groups(kafka: str, groups: Iterable[str], patience_s: float) -> None:
    """Delete consumer groups with their offsets and assignments.

    The broker keeps a member that ended until its session times out, and would assign a member of
    the same name its old partitions again, even if the topic has others by now. So this waits until
    no member is left. Raises `GroupInUse` after `patience_s` seconds, and `BrokerUnreachable`.
    """
    deadline = time.monotonic() + patience_s
    async with admin_client(kafka) as client:
        for group in groups:
            while (error := await _delete_group(client, group)) is not None:
                if time.monotonic() > deadline:
                    raise GroupInUse(group) if error is NonEmptyGroup else error(group)
                await asyncio.sleep(0.5)


class GroupInUse(RuntimeError):
    """A consumer group has members."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"workers of group {group} run: stop them on every host (with `up`: start it with "
            "--no-workers), and run this again"
        )


async def _delete_group(client: AIOKafkaAdminClient, group: str) -> type[KafkaError] | None:
    """Ask the group's coordinator to delete it; return the error, None if the group is gone."""
    try:
        node = await client.find_coordinator(group)
    except KafkaError as refusal:  # the coordinator is loading
        return type(refusal)
    response = await client._send_request_to_node(node, DeleteGroupsRequest([group]))
    ((_group, code),) = response.results
    error: type[KafkaError] = for_code(code)
    return error if code and error is not GroupIdNotFound else None
