"""Adds ACLs to a broker by Kafka's protocol, as `kafka-acls.sh --add` does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import CreateAclsRequest

from deploy.access.rights import KAFKA, Right
from headstart.connections.kafka_connections import client_options
from headstart.connections.kafka_security import KafkaSecurity

_OPERATIONS: Final = {
    "Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Alter": 7, "Describe": 8,
    "DescribeConfigs": 10,
}  # fmt: skip
_RESOURCES: Final = {"topic": 2, "group": 3}
_LITERAL, _ALLOW = 3, 3
"""Codes of `org.apache.kafka.common.acl` and `.resource`."""


class Acl(NamedTuple):
    """One operation that a principal may do. `principal`: as `User:NAME`."""

    principal: str
    operation: str
    kind: str
    name: str


def acls_of(given: Sequence[Right], users: Mapping[str, str]) -> Iterator[Acl]:
    """Yield the rights in Kafka as ACLs. `users`: the user of each identity."""
    for each in given:
        if each.kind in KAFKA:
            yield Acl(f"User:{users[each.identity]}", each.operation, each.kind, each.name)


async def add_acls(kafka: str, security: KafkaSecurity, acls: Iterable[Acl]) -> None:
    """Add ACLs; one that exists stays. `security`: of a super user.

    Raises `PermissionError` if the broker refuses one, and aiokafka's `KafkaError`.
    """
    client = AIOKafkaClient(bootstrap_servers=kafka, **client_options(security))
    await client.bootstrap()
    try:
        node = client.get_random_node()
        for acl in acls:
            request = CreateAclsRequest(
                _RESOURCES[acl.kind], acl.name, _LITERAL, acl.principal, "*",
                _OPERATIONS[acl.operation], _ALLOW,
            )  # fmt: skip
            ((error, reason),) = (await client.send(node, request)).creation_responses
            if error:
                raise PermissionError(f"the broker refuses an ACL of {acl.principal}: {reason}")
    finally:
        await client.close()
