"""Tries each operation of Kafka's ACLs by a request that changes nothing where it is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import (
    AlterConfigsRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DescribeAclsRequest,
    DescribeConfigsRequest,
)
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.protocol.types import Array, Schema

from headstart.connections.kafka_connections import client_options
from headstart.connections.kafka_security import KafkaSecurity

_DENIED: Final = {29, 30, 31, 53}
"""TOPIC_, GROUP_, CLUSTER_ and TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
TOPIC_OPERATIONS: Final = (
    "Read", "Write", "Describe", "Create", "Delete", "Alter", "AlterConfigs", "DescribeConfigs",
)  # fmt: skip
GROUP_OPERATIONS: Final = ("Read", "Describe", "Delete", "DescribeConfigs")
CLUSTER_OPERATIONS: Final = (
    "Create", "Alter", "Describe", "ClusterAction", "DescribeConfigs", "AlterConfigs",
    "IdempotentWrite",
)  # fmt: skip
TRANSACTION_OPERATIONS: Final = ("Write", "Describe")
"""Each is every operation of its resource in `org.apache.kafka.common.acl`, but AlterConfigs of a
group, which no request of aiokafka asks for."""
_TOPIC, _ANY, _BROKER, _GROUP = 2, 1, 4, 32
_NODE: Final = "1"
_FOLLOWER: Final = 7
"""A node that the cluster does not have."""
_OF_TRANSACTIONS: Final = 1


class _ByFollower(FetchRequest):
    """Fetches as a broker does."""

    def build(self, request_struct_class: Any) -> Any:
        found = super().build(request_struct_class)
        found.replica_id = _FOLLOWER
        return found


class Attempts:
    """The requests of one user; each says whether the broker allows it."""

    def __init__(self, kafka: str, security: KafkaSecurity) -> None:
        self._client = AIOKafkaClient(bootstrap_servers=kafka, **client_options(security))

    async def __aenter__(self) -> Attempts:
        await self._client.bootstrap()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def on_topic(self, operation: str, name: str) -> bool:
        request = {
            "Read": FetchRequest(0, 0, 1_000, 0, [(name, [(0, 0, 1_000)])]),
            "Write": ProduceRequest(None, 1, 5_000, [(name, [(0, b"")])]),
            "Describe": MetadataRequest([name], allow_auto_topic_creation=False),
            "Create": CreateTopicsRequest([(name, 1, 1, [], [])], 5_000, True),
            "Delete": DeleteRecordsRequest([(name, [(0, 0)])], 5_000),
            "Alter": CreatePartitionsRequest([(name, (64, None))], 5_000, True),
            "AlterConfigs": AlterConfigsRequest([(_TOPIC, name, [])], True),
            "DescribeConfigs": DescribeConfigsRequest([(_TOPIC, name, ["retention.ms"])]),
        }[operation]
        return await self._allows(request)

    async def on_group(self, operation: str, name: str) -> bool:
        request = {
            "Read": HeartbeatRequest(name, -1, "nobody"),
            "Describe": FindCoordinatorRequest(name, 0),
            "Delete": DeleteGroupsRequest([name]),
            "DescribeConfigs": DescribeConfigsRequest([(_GROUP, name, None)]),
        }[operation]
        return await self._allows(request)

    async def on_cluster(self, operation: str, topic: str) -> bool:
        """`topic`: one that exists, to fetch."""
        acl = (_TOPIC, "others", 3, "User:nobody", "*", 3, 3)
        request = {
            "Create": CreateTopicsRequest([("others.new", 1, 1, [], [])], 5_000, True),
            "ClusterAction": _ByFollower(0, 0, 1_000, 0, [(topic, [(0, 0, 1_000)])]),
            "DescribeConfigs": DescribeConfigsRequest([(_BROKER, _NODE, ["log.dirs"])]),
            "AlterConfigs": AlterConfigsRequest([(_BROKER, _NODE, [])], True),
            "Alter": CreateAclsRequest(*acl),
            "Describe": DescribeAclsRequest(_ANY, "others", 3, "User:nobody", "*", 1, 1),
            "IdempotentWrite": InitProducerIdRequest(None, -1),
        }[operation]
        return await self._allows(request)

    async def with_transactional_id(self, operation: str, name: str) -> bool:
        request = {
            "Write": InitProducerIdRequest(name, 1_000),
            "Describe": FindCoordinatorRequest(name, _OF_TRANSACTIONS),
        }[operation]
        return await self._allows(request)

    async def _allows(self, request: Any) -> bool:
        node = self._client.get_random_node()
        response = await self._client.send(node, request)
        codes = set(_codes(response.SCHEMA, [getattr(response, n) for n in response.SCHEMA.names]))
        assert codes, response
        return not codes & _DENIED


def _codes(schema: Any, values: Any) -> Iterator[int]:
    """Yield every error code in a response; aiokafka's own walk fails at an empty list."""
    if isinstance(schema, Array):
        for each in values or ():
            yield from _codes(schema.array_of, each)
    elif isinstance(schema, Schema):
        for name, below, value in zip(schema.names, schema.fields, values, strict=True):
            if name == "error_code":
                yield value
            else:
                yield from _codes(below, value)
