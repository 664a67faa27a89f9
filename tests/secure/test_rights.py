"""Every right of every process, tried at real servers: each has what it needs, and nothing else."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Final

import psycopg
import pytest
import yaml
from redis import Redis

from deploy.access.kafka_acls import strimzi_users
from deploy.access.rights import IDENTITIES, Right, rights
from deploy.local import Addresses
from headstart.connections.kafka_security import UNSECURED, KafkaSecurity
from tests.secure.attempts import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
    TRANSACTION_OPERATIONS,
    Attempts,
)
from tests.secure.identities import OTHERS, SPANS_TOPIC, STRANGER, USERS, Identities
from topics.catalogue import EVENTS, TOPICS

GROUPS: Final = (*(f"headstart-{name}" for name in IDENTITIES), OTHERS, "headstart-history-2")
PLACES: Final = (*(each.name for each in TOPICS), SPANS_TOPIC, OTHERS, f"{EVENTS.name}.copy")
"""The last is not there: a right to a name is none to names that begin with it."""
IMPLIED: Final = {"Describe": {"Read", "Write", "Delete", "Alter"}}
"""What Kafka's authorizer takes for a right, too."""

Tried = dict[tuple[str, str, str], bool]


async def tried_in_kafka(kafka: str, security: KafkaSecurity) -> Tried:
    found: Tried = {}
    async with Attempts(kafka, security) as attempts:
        for name, operation in product(PLACES, TOPIC_OPERATIONS):
            found[operation, "topic", name] = await attempts.on_topic(operation, name)
        for name, operation in product(GROUPS, GROUP_OPERATIONS):
            found[operation, "group", name] = await attempts.on_group(operation, name)
        for operation in CLUSTER_OPERATIONS:
            found[operation, "cluster", ""] = await attempts.on_cluster(operation, EVENTS.name)
        for name, operation in product(GROUPS, TRANSACTION_OPERATIONS):
            allowed = await attempts.with_transactional_id(operation, name)
            found[operation, "transactional id", name] = allowed
    return found


def has(granted: list[Right], operation: str, kind: str, name: str) -> bool:
    if operation == "IdempotentWrite":
        return any(each.operation == "Write" for each in granted)
    accepted = {operation} | IMPLIED.get(operation, set())
    return any(each[1:] == (one, kind, name) for each in granted for one in accepted)


@pytest.mark.parametrize("identity", [*IDENTITIES, STRANGER])
def test_kafka_allows_what_a_process_needs_and_nothing_else(
    identities: Identities, identity: str
) -> None:
    granted = [each for each in rights(SPANS_TOPIC) if each.identity == identity]
    found = asyncio.run(tried_in_kafka(identities.kafka, identities.security(identity)))
    wanted = {place: has(granted, *place) for place in found}
    assert {place for place in found if found[place] != wanted[place]} == set()
    assert any(found.values()) == (identity not in (STRANGER, "memory"))
    in_kafka = {each[1:] for each in granted if each.kind in ("topic", "group")}
    assert in_kafka <= {place for place in found if found[place]}, "each right was tried"


def test_each_attempt_succeeds_for_one_who_may(identities: Identities) -> None:
    """Else a refusal would say nothing."""
    found = asyncio.run(tried_in_kafka(identities.internal, UNSECURED))
    assert [place for place in found if not found[place]] == []


THRESHOLD = "headstart:thresholds:acme:refund"
MODEL = "headstart:model:acme:refund"
READERS = {"executor", "thresholds", "operator"}
WRITERS = {"thresholds", "operator"}
NONE: set[str] = set()
REDIS: Final[dict[tuple[str, ...], set[str]]] = {
    ("HMGET", THRESHOLD, "a"): READERS,
    ("HMGET", "headstart:modes", "*"): READERS,
    ("HMGET", "headstart:modes:acme", "*"): READERS,
    ("HMGET", MODEL, "version"): READERS,
    ("HSTRLEN", MODEL, "snapshot"): READERS,
    ("HGET", MODEL, "version"): {*WRITERS, "predictions"},
    ("HMGET", "headstart:commands:authors", "a"): WRITERS,
    ("GET", "headstart:epoch"): WRITERS,
    ("HSET", THRESHOLD, "a", "1"): WRITERS,
    ("HSET", "headstart:modes", "*", "off"): WRITERS,
    ("HSET", MODEL, "version", "1"): {*WRITERS, "predictions"},
    ("RENAME", MODEL, f"headstart:set-aside:{{{MODEL}}}"): {*WRITERS, "predictions"},
    ("EVAL", "return 1", "1", MODEL): {*WRITERS, "predictions"},
    ("EVAL", "return 1", "1", THRESHOLD): WRITERS,
    ("PUBLISH", THRESHOLD, "[]"): WRITERS,
    ("PUBLISH", "headstart:modes", "{}"): WRITERS,
    ("SUBSCRIBE", THRESHOLD): {"executor", "operator"},
    ("SUBSCRIBE", "headstart:modes"): {"executor", "operator"},
    ("SUBSCRIBE", "others"): NONE,
    ("PSUBSCRIBE", "*"): NONE,
    ("PUBLISH", "others", "x"): NONE,
    ("GET", "others"): NONE,
    ("SET", "others", "x"): NONE,
    ("HMGET", "others", "x"): NONE,
    ("HSET", "others", "x", "y"): NONE,
    ("DEL", "others"): NONE,
    ("EVAL", "return 1", "1", "others"): NONE,
    ("RENAME", THRESHOLD, "others"): NONE,
    ("KEYS", "*"): NONE,
    ("FLUSHALL",): NONE,
    ("FLUSHDB",): NONE,
    ("CONFIG", "GET", "*"): NONE,
    ("CONFIG", "SET", "maxmemory", "1"): NONE,
    ("ACL", "LIST"): NONE,
    ("ACL", "SETUSER", "default", "on"): NONE,
    ("SHUTDOWN",): NONE,
    ("MONITOR",): NONE,
    ("DEBUG", "SLEEP", "0"): NONE,
    ("CLIENT", "LIST"): NONE,
    ("CLIENT", "KILL", "TYPE", "normal"): NONE,
    ("REPLICAOF", "NO", "ONE"): NONE,
    ("SCRIPT", "FLUSH"): NONE,
    ("FUNCTION", "FLUSH"): NONE,
    ("MIGRATE", "h", "1", THRESHOLD, "0", "1"): NONE,
    ("RESTORE", THRESHOLD, "0", "x"): NONE,
    ("SWAPDB", "0", "1"): NONE,
}
"""Commands, and who may run them; the server's own `ACL DRYRUN` tries them."""


@pytest.mark.parametrize("identity", ["executor", "thresholds", "predictions", "operator"])
def test_redis_allows_what_a_process_needs_and_nothing_else(
    identities: Identities, plain: Addresses, identity: str
) -> None:
    with Redis.from_url(plain.redis, decode_responses=True) as redis:
        found = {
            command: redis.execute_command("ACL", "DRYRUN", USERS[identity], *command) == "OK"
            for command in REDIS
        }
    wrong = {command for command, may in REDIS.items() if found[command] != (identity in may)}
    assert wrong == set()


def test_only_four_processes_have_a_user_in_redis(identities: Identities, plain: Addresses) -> None:
    with Redis.from_url(plain.redis, decode_responses=True) as redis:
        names = {each for each in redis.acl_users() if each.startswith("headstart-")}
    assert names == {USERS[each] for each in ("executor", "thresholds", "predictions", "operator")}


def test_the_grants_of_postgres_are_those_of_the_migrations(
    identities: Identities, plain: Addresses
) -> None:
    """tests/sinks/isolation tries each role with each table; this compares what was granted."""
    granted = """SELECT table_name, grantee, privilege_type FROM information_schema.%s
        WHERE grantee LIKE 'headstart%%' ORDER BY 1, 2, 3"""
    with psycopg.connect(plain.postgres, autocommit=True) as owner:

        def grants() -> list[object]:
            wanted = [granted % name for name in ("role_table_grants", "role_column_grants")]
            return [row for query in wanted for row in owner.execute(query.encode()).fetchall()]

        before = grants()
        owner.execute(
            "REVOKE ALL ON ALL TABLES IN SCHEMA public"
            " FROM headstart_sink, headstart_worker, headstart_reader"
        )
        assert grants() == []
        owner.execute(identities.printed("postgres").encode())
        assert grants() == before


def test_each_user_of_strimzi_has_the_same_rights(identities: Identities) -> None:
    found = set()
    for user in yaml.safe_load_all(identities.printed("strimzi")):
        assert (user["apiVersion"], user["kind"]) == ("kafka.strimzi.io/v1", "KafkaUser")
        assert user["metadata"]["labels"] == {"strimzi.io/cluster": "kafka"}
        assert user["spec"]["authentication"] == {"type": "scram-sha-512"}
        assert user["spec"]["authorization"].keys() == {"type", "acls"}
        for acl in user["spec"]["authorization"]["acls"]:
            assert acl.keys() == {"resource", "operations"}
            resource = acl["resource"]
            assert resource.pop("patternType") == "literal"
            of = (user["metadata"]["name"], resource["type"], resource["name"])
            found |= {(of[0], operation, *of[1:]) for operation in acl["operations"]}
    kafka = [each for each in rights(SPANS_TOPIC) if each.kind in ("topic", "group")]
    assert found == {(USERS[each.identity], *each[1:]) for each in kafka}
    assert EVENTS.name in {each[3] for each in found}


def test_a_name_that_kubernetes_refuses_is_an_error() -> None:
    users = {**USERS, "executor": "CN=agent"}
    with pytest.raises(ValueError, match="'CN=agent' cannot name a resource of Kubernetes"):
        strimzi_users(rights(only=["executor"]), users, "kafka")
