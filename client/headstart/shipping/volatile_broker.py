"""Reads the log epoch, and recognises by it the lives of a broker that keeps its log in memory.

`headstart up` marks the log epoch of its embedded broker as volatile. Events that such a broker
acknowledged are lost with its process, so a sender must know which process it talks to. A
`BrokerLife` is one connection to it; the epoch was read while that was open. Nothing is sent over
another connection, not even by the producer's own retries, before the epoch is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.commit import OffsetFetchRequest

from headstart.connections.kafka_connections import new_consumer
from headstart.connections.kafka_security import KafkaSecurity

EPOCHS: Final = "headstart.epochs"
EVENTS: Final = "headstart.events"
DECISIONS: Final = "headstart.decisions"
GROUPS: Final = ("headstart-episodes", "headstart-thresholds")
"""Consumer groups: an event below both committed offsets cannot be lost any more."""
GROUPS_OF_DECISIONS: Final = ("headstart-predictions",)
"""The same for `DECISIONS`."""
_READ_S: Final = 10.0


class _LogEpoch(NamedTuple):
    """A log epoch: its number, the partition count that belongs to it, and whether it may end."""

    number: int
    partitions: int | None
    volatile: bool


class LogNotReady(KafkaError):  # type: ignore[misc]
    """The log is being recreated: nothing may be sent before `topics recreate` has ended."""


class BrokerLife:
    """One life of a volatile broker: its log epoch, and a connection to it."""

    def __init__(
        self, epoch: int, partitions: int | None, clients: Sequence[Any], node: int
    ) -> None:
        """`partitions`: that belong to the epoch; None: unknown."""
        self.epoch, self.partitions = epoch, partitions
        self._client, self._node = clients[0], node

    async def committed(
        self, topic: str, partitions: Sequence[int]
    ) -> dict[str, Mapping[int, int]]:
        """Return the committed offsets of the groups that read a topic, by partition.

        Raises `KafkaError` if this life is over, or the broker returns an error.
        """
        found: dict[str, Mapping[int, int]] = {}
        for group in GROUPS_OF_DECISIONS if topic == DECISIONS else GROUPS:
            request = OffsetFetchRequest(group, [(topic, list(partitions))])
            response = await self._client.send(self._node, request)
            offsets: dict[int, int] = {}
            for _topic, answers in response.topics:
                for partition, offset, _metadata, code in answers:
                    if code:
                        raise for_code(code)(f"committed offsets of {group}")
                    if offset >= 0:
                        offsets[partition] = offset
            found[group] = offsets
        return found


async def volatile_life(
    kafka: str,
    producers: Sequence[AIOKafkaProducer],
    lost: Callable[[], None],
    security: KafkaSecurity | None = None,
) -> BrokerLife | None:
    """Return the life that producers are connected to; None if the log is durable.

    From then on the producers use their present connections only; `lost` is called when one of
    them closes. Raises `KafkaError` if the log has no epoch yet, or the broker went away.
    """
    if all(producer._txn_manager is not None for producer in producers):
        return None  # a broker that assigns producer ids is not the embedded one
    clients = [producer.client for producer in producers]
    nodes = [broker.nodeId for broker in clients[0].cluster.brokers()]
    if len(nodes) != 1:
        return None
    for client in clients:
        if not await client.ready(nodes[0]):
            raise KafkaConnectionError(f"no connection to the broker at {kafka}")
    epoch = await _read_epoch(kafka, security)
    if not epoch.volatile:
        return None
    for client in clients:
        _pin(client, nodes[0], lost)
    return BrokerLife(epoch.number, epoch.partitions, clients, nodes[0])


async def epoch_partitions(
    kafka: str, producer: AIOKafkaProducer, security: KafkaSecurity | None = None
) -> int | None:
    """Return the partition count of the log epoch, which no later change of a topic changes.

    None: a durable log has no epoch, or this client may not read it. Raises `KafkaError` if an
    embedded broker's log has no epoch yet, or the broker went away, and `LogNotReady`.
    """
    try:
        return (await _read_epoch(kafka, security)).partitions
    except (UnknownTopicOrPartitionError, TopicAuthorizationFailedError):
        if producer._txn_manager is None:
            raise
        return None


def _pin(client: Any, node: int, lost: Callable[[], None]) -> None:
    """Have a client use its present connection only.

    Raises `KafkaConnectionError` if that is closed: the epoch may be of a later life.
    """
    connections = client._conns
    pinned = next((conn for (at, _group), conn in connections.items() if at == node), None)
    if pinned is None or not pinned.connected():
        raise KafkaConnectionError("the broker closed the connection")
    original = client._on_connection_closed

    async def get(at: Any, *, group: Any = None, no_hint: bool = False) -> Any:  # noqa: ARG001
        return pinned if at == node and pinned.connected() else None

    def closed(connection: Any, reason: Any) -> None:
        original(connection, reason)
        lost()

    pinned._on_close_cb = closed
    client._get_conn = get


async def _read_epoch(kafka: str, security: KafkaSecurity | None) -> _LogEpoch:
    """Return the log epoch.

    Raises `UnknownTopicOrPartitionError` if there is none yet: topics are being created. Raises
    `LogNotReady` while the log is recreated.
    """
    consumer = new_consumer(kafka, security, enable_auto_commit=False, fetch_max_wait_ms=50)
    try:
        await consumer.start()
        if EPOCHS not in await consumer.topics():
            raise UnknownTopicOrPartitionError(f"{EPOCHS}: run `headstart topics create`")
        last = await asyncio.wait_for(_last_record(consumer), _READ_S)
    except TimeoutError as error:
        raise KafkaError(f"{EPOCHS} cannot be read") from error
    finally:
        await consumer.stop()
    if last is None:
        raise UnknownTopicOrPartitionError(f"{EPOCHS} is empty: run `headstart topics create`")
    described = orjson.loads(last)
    if "recreation" in described:
        raise LogNotReady
    return _LogEpoch(
        int(described["number"]), described.get("partitions"), bool(described.get("volatile"))
    )


async def _last_record(consumer: AIOKafkaConsumer) -> bytes | None:
    partition = TopicPartition(EPOCHS, 0)
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    last: bytes | None = None
    while True:
        for records in (await consumer.getmany(partition, timeout_ms=200)).values():
            last = records[-1].value
        end = consumer.highwater(partition)
        if end is not None and await consumer.position(partition) >= end:
            return last
