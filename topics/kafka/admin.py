"""Creates and deletes topics; reads their partitions, copies and settings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidReplicationFactorError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest

from headstart.connections.kafka_connections import client_options
from headstart.connections.own_security import own_security
from headstart.kafka_producer import BrokerUnreachable
from topics.catalogue import TOPICS, Topic
from topics.kafka.asking_again import ask_again

_SETTLE_ATTEMPTS: Final = 20
"""How often topics are recreated that a client's request auto-creates meanwhile."""
_DELETED_S: Final = 30.0
IN_SYNC: Final = "min.insync.replicas"
"""How many copies must have a record before it is acknowledged."""


class BrokersFenced(KafkaError):  # type: ignore[misc]
    """The controller uses none of the brokers until they report to it again."""

    retriable = True


class TopicsMissing(LookupError):
    """Topics that the service needs do not exist on this broker."""

    def __init__(self, kafka: str, names: Iterable[str]) -> None:
        super().__init__(
            f"missing on the broker at {kafka}: {', '.join(sorted(names))}. "
            "Create them with `headstart topics create`"
        )


@asynccontextmanager
async def admin_client(kafka: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """Yield a started admin client. Raises `BrokerUnreachable`."""
    client = AIOKafkaAdminClient(
        bootstrap_servers=kafka, request_timeout_ms=10_000, **client_options()
    )
    try:
        await client.start()
    except (KafkaError, OSError) as error:
        await client.close()
        raise BrokerUnreachable(kafka, error) from error
    try:
        yield client
    finally:
        await client.close()


async def create_topics(
    kafka: str, partitions: int, replication: int = 1, topics: Iterable[Topic] = TOPICS
) -> list[str]:
    """Create missing topics and return their names.

    Of three copies, two must have a record before it is acknowledged: one broker may be away, and
    another be lost then. Waits for brokers that the controller has fenced, because they did not
    report in time. Raises `BrokerUnreachable`, or `KafkaError` with the broker's reason.
    """
    created: list[str] = []
    existing: set[str] | None = None

    async def create() -> None:
        nonlocal existing
        async with admin_client(kafka) as client:
            if existing is None:  # later it would have what a request created whose answer is lost
                existing = set(await client.list_topics())
            for topic in topics:
                if topic.name not in existing.union(created):
                    await _create(client, topic, partitions, replication)
                    created.append(topic.name)

    await ask_again(kafka, create)
    return created


async def _create(client: Any, topic: Topic, partitions: int, replication: int) -> None:
    configs = {**topic.configuration(), **in_sync(replication)}
    number = partitions if topic.partitioned else 1
    new = NewTopic(topic.name, number, replication, topic_configs=configs)
    response = await client.create_topics([new])
    for _name, code, *reason in response.topic_errors:
        error, why = for_code(code), str(reason[0] if reason else "")
        if error is InvalidReplicationFactorError and "fenced" in why:
            error = BrokersFenced
        if code and error is not TopicAlreadyExistsError:
            raise error(f"{topic.name}: {why or error.__name__}")


def in_sync(copies: int) -> dict[str, str]:
    """Return the setting of a topic that has so many copies of each partition."""
    return {IN_SYNC: str(copies // 2 + 1)} if copies > 2 else {}


class PartitionCountUnstable(KafkaError):  # type: ignore[misc]
    """Clients keep auto-creating topics with another partition count."""

    def __init__(self, kafka: str, names: Iterable[str]) -> None:
        super().__init__(
            f"clients of the broker at {kafka} keep creating {', '.join(sorted(names))} with "
            "another number of partitions: stop them until the topics exist"
        )


async def partition_counts(kafka: str, names: Iterable[str]) -> dict[str, int]:
    """Return the partition counts of the topics that exist.

    Raises `BrokerUnreachable`, also if the broker's ACLs hide one of them.
    """
    wanted = set(names)
    copies = await ask_again(kafka, lambda: visible_copies(kafka, wanted))
    return {name: len(each) for name, each in copies.items()}


async def recreate_mismatched(
    kafka: str, partitions: int, replication: int = 1, topics: Sequence[Topic] = TOPICS
) -> None:
    """Recreate each topic that has another partition count than it should.

    Only for a log without a log epoch: the embedded broker auto-creates topics on a client's
    request, and no shipper has sent anything yet. Raises `BrokerUnreachable` and `KafkaError`.
    """
    wanted = {each.name: partitions if each.partitioned else 1 for each in topics}
    for _attempt in range(_SETTLE_ATTEMPTS):
        async with admin_client(kafka) as client:
            found = await _partition_counts(client, wanted)
            wrong = [name for name, count in found.items() if count != wanted[name]]
            if wrong:
                await client.delete_topics(wrong)
        if not wrong and found.keys() == wanted.keys():
            return
        await create_topics(kafka, partitions, replication, topics)
    raise PartitionCountUnstable(kafka, wrong)


async def delete_topics(kafka: str, names: Iterable[str]) -> list[str]:
    """Delete the topics that exist; return them once the broker lists none of them.

    Raises `BrokerUnreachable`, `KafkaError` with the broker's reason, and `TimeoutError`.
    """
    async with admin_client(kafka) as client:
        found = sorted(set(names) & set(await client.list_topics()))
        response = await client.delete_topics(found) if found else None
        for name, code in response.topic_error_codes if response else ():
            if code:
                raise for_code(code)(f"{name}: {for_code(code).__name__}")
        deadline = time.monotonic() + _DELETED_S
        while left := set(found) & set(await client.list_topics()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker still lists {', '.join(sorted(left))}: try again")
            await asyncio.sleep(0.2)
    return found


async def _partition_counts(client: AIOKafkaAdminClient, names: Iterable[str]) -> dict[str, int]:
    return {name: len(copies) for name, copies in (await _copies(client, names)).items()}


async def _copies(client: AIOKafkaAdminClient, names: Iterable[str]) -> dict[str, list[int]]:
    """Return by topic that exists how many copies each of its partitions has."""
    existing = set(await client.list_topics())
    wanted = [name for name in names if name in existing]  # the request would create others
    described = await client.describe_topics(wanted) if wanted else []
    return {
        topic["topic"]: [len(each["replicas"]) for each in topic["partitions"]]
        for topic in described
    }


async def visible_copies(kafka: str, names: AbstractSet[str]) -> dict[str, list[int]]:
    """Return how many copies each partition has, by topic that exists.

    Raises `BrokerUnreachable`, also if the broker's ACLs hide a topic.
    """
    async with admin_client(kafka) as client:
        copies = await _copies(client, names)
        if hidden := await _hidden(client, names - copies.keys()):
            raise BrokerUnreachable(kafka, TopicAuthorizationFailedError(*hidden))
    return copies


async def _hidden(client: AIOKafkaAdminClient, names: Iterable[str]) -> list[str]:
    """Return which of these topics, that the broker does not list, it does not show this client.

    Not asked over plain text: the embedded broker creates any topic that it is asked for.
    """
    security = own_security()
    if not (names := sorted(names)) or not (security.uses_tls or security.uses_login):
        return []
    node = client._client.get_random_node()
    request = MetadataRequest(names, allow_auto_topic_creation=False)
    described = (await client._send_request_to_node(node, request)).to_object()["topics"]
    denied = TopicAuthorizationFailedError.errno
    return [each["topic"] for each in described if each["error_code"] == denied]


async def topic_settings(kafka: str, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the configuration of topics by name. Raises `BrokerUnreachable`."""
    wanted = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]

    async def ask() -> Any:
        async with admin_client(kafka) as client:
            return await client.describe_configs(wanted) if wanted else []

    answers = await ask_again(kafka, ask)
    return {
        resource[3]: {entry[0]: entry[1] for entry in resource[4] if entry[1] is not None}
        for answer in answers
        for resource in answer.resources
        if resource[0] == 0
    }
