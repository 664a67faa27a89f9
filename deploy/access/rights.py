"""What each process may do, as one table of processes, operations and resources.

Everything else should be refused. In Kafka, Read, Write and Delete of a topic include Describe, and
Write includes idempotent producers (KIP-679); Headstart uses no transactions. A key in Redis is
read, or read and written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from headstart.keys import MODES, MODES_KEYS
from topics.catalogue import (
    CHANGELOG,
    COMMANDS,
    DEAD_LETTERS,
    DECISIONS,
    EPISODES_GROUP,
    EPOCHS,
    EVENTS,
    HANDLED,
    HISTORY_GROUP,
    MODELS,
    NOTICES,
    OF_ONE_LOG,
    PREDICTIONS_GROUP,
    SPANS_GROUP,
    THRESHOLDS,
    THRESHOLDS_GROUP,
    TOPICS,
    Topic,
    worker_of,
)

Kind = Literal["topic", "group", "key", "channel", "command", "role"]
"""Of Kafka: topic, group; of Redis: key, channel, command; of Postgres: role."""
KAFKA: Final[tuple[Kind, ...]] = ("topic", "group")
REDIS: Final[tuple[Kind, ...]] = ("key", "channel", "command")

EXECUTOR: Final = "executor"
OPERATOR: Final = "operator"
"""Who runs commands of `headstart`, also `topics create`."""
IDENTITIES: Final = (
    EXECUTOR, "episodes", "thresholds", "history", "predictions", "memory", "spans", OPERATOR,
)  # fmt: skip
DEFAULT_USERS: Final = {identity: f"headstart-{identity}" for identity in IDENTITIES}
"""The user of each process in Kafka and Redis, if no other is named."""


class Right(NamedTuple):
    """One right. `operation`: of Kafka as `kafka-acls.sh` names it; of Redis `read`, `write`,
    `subscribe`, `run`; of Postgres `use`.

    `name`: a topic, group, command or role; of keys and channels a pattern of Redis.
    """

    identity: str
    operation: str
    kind: Kind
    name: str


_TOPICS: Final[Mapping[str, Mapping[str, Sequence[Topic]]]] = {
    EXECUTOR: {"Read": (EPOCHS,), "Write": (EVENTS, DECISIONS)},
    "episodes": {
        "Read": (EVENTS, EPOCHS),
        "Write": (DEAD_LETTERS,),
        "DescribeConfigs": (EVENTS,),
    },
    "thresholds": {
        "Read": (EVENTS, CHANGELOG, COMMANDS, EPOCHS),
        "Write": (CHANGELOG, THRESHOLDS, EVENTS, DEAD_LETTERS),
        "DescribeConfigs": (EVENTS,),
    },
    "history": {
        "Read": (THRESHOLDS, COMMANDS, EPOCHS),
        "Write": (NOTICES, EVENTS, DEAD_LETTERS),
        "DescribeConfigs": (EVENTS,),
    },
    "predictions": {
        "Read": (DECISIONS, MODELS, EPOCHS),
        "Write": (MODELS, DEAD_LETTERS),
        "Describe": (EVENTS,),
        "DescribeConfigs": (EVENTS,),
    },
    "spans": {"Read": (EPOCHS,), "Write": (EVENTS, DEAD_LETTERS)},
    OPERATOR: {
        "Read": TOPICS,
        "Write": (
            EVENTS, THRESHOLDS, DECISIONS, MODELS, COMMANDS, HANDLED, EPOCHS, CHANGELOG,
        ),
        "Alter": (EVENTS, DECISIONS),
        "Create": TOPICS,
        "Delete": OF_ONE_LOG,
        "DescribeConfigs": TOPICS,
    },
}  # fmt: skip
"""Executors read the log epoch: its number of partitions is the one that keys are assigned by.
Workers write to `headstart.events` control records: what downweights, or sets a default. They read
of its configuration how far a clock may be ahead. `backup restore` and `topics recreate` write what
workers had written, and the latter adds a partition, which has producers look again. It makes sure
that no group has members, also where no worker reads spans."""
_GROUPS: Final = {
    worker_of(group): group
    for group in (EPISODES_GROUP, THRESHOLDS_GROUP, HISTORY_GROUP, PREDICTIONS_GROUP, SPANS_GROUP)
}
_ALL_KEYS: Final = "headstart:*"
_THRESHOLD_KEYS: Final = "headstart:thresholds:*"
_MODEL_KEYS: Final = "headstart:model:*"
_SET_ASIDE_KEYS: Final = "headstart:set-aside:*"
_TENANTS_MODES: Final = MODES_KEYS[1]
_CONNECTION: Final = ("hello", "ping", "select", "client|setname", "client|setinfo")
_OF_CLUSTER: Final = ("asking", "cluster|slots")
_SCRIPTS: Final = ("eval", "evalsha", "script|load")
_SERVING: Final = (
    *_CONNECTION, *_SCRIPTS, "get", "set", "del", "type", "expire", "rename", "scan", "hget",
    "hmget", "hgetall", "hlen", "hexists", "hstrlen", "hscan", "hset", "hdel", "publish", "info",
    "role", "time", *_OF_CLUSTER, "command",
)  # fmt: skip
_COMMANDS: Final = {
    EXECUTOR: (
        *_CONNECTION, "hmget", "hstrlen", "subscribe", "unsubscribe", *_OF_CLUSTER, "cluster|info",
        "cluster|nodes", "command",
    ),
    "thresholds": _SERVING,
    "predictions": (
        *_CONNECTION, *_SCRIPTS, "hget", "hset", "hexists", "type", "rename", "expire", "time",
        *_OF_CLUSTER, "command",
    ),
    OPERATOR: (*_SERVING, "subscribe", "unsubscribe"),
}  # fmt: skip
_KEYS: Final = {
    EXECUTOR: (
        ("read", _THRESHOLD_KEYS), ("read", f"{MODES}*"), ("read", _TENANTS_MODES),
        ("read", _MODEL_KEYS),
    ),
    "thresholds": (("write", _ALL_KEYS), ("write", _TENANTS_MODES)),
    "predictions": (("write", _MODEL_KEYS), ("write", _SET_ASIDE_KEYS)),
    OPERATOR: (("write", _ALL_KEYS), ("write", _TENANTS_MODES)),
}  # fmt: skip
_CHANNELS: Final = {
    EXECUTOR: (_THRESHOLD_KEYS, f"{MODES}*"),
    "thresholds": (_THRESHOLD_KEYS, f"{MODES}*"),
    OPERATOR: (_THRESHOLD_KEYS, f"{MODES}*"),
}
_ROLES: Final = {
    EXECUTOR: "headstart_reader",
    "episodes": "headstart_sink",
    "history": "headstart_sink",
    "memory": "headstart_worker",
}
"""The roles of sinks/postgres/sql/memory_schema.sql, which has their grants. An executor needs its
role for `Memory` only; an operator connects as the owner of the tables."""


def rights(spans_topic: str = "", only: Iterable[str] = ()) -> list[Right]:
    """Return the table, in the order of `IDENTITIES`.

    `spans_topic`: the topic of another system that the worker `spans` reads; empty: there is no
    such worker. `only`: identities; default: all.
    """
    wanted = set(only) or set(IDENTITIES)
    if not spans_topic:
        wanted.discard("spans")
    return [
        right
        for identity in IDENTITIES
        if identity in wanted
        for right in (*_of_kafka(identity, spans_topic), *_of_others(identity))
    ]


def _of_kafka(identity: str, spans_topic: str) -> Iterator[Right]:
    for operation, topics in _TOPICS.get(identity, {}).items():
        for topic in topics:
            yield Right(identity, operation, "topic", topic.name)
        if operation == "Read" and spans_topic and identity in ("spans", OPERATOR):
            yield Right(identity, operation, "topic", spans_topic)
    if identity in _GROUPS:
        yield Right(identity, "Read", "group", _GROUPS[identity])
    if identity == OPERATOR:
        for name, group in _GROUPS.items():
            yield Right(identity, "Describe", "group", group)
            if spans_topic or name != "spans":
                yield Right(identity, "Delete", "group", group)


def _of_others(identity: str) -> Iterator[Right]:
    for operation, keys in _KEYS.get(identity, ()):
        yield Right(identity, operation, "key", keys)
    for channels in _CHANNELS.get(identity, ()):
        yield Right(identity, "subscribe", "channel", channels)
    for command in _COMMANDS.get(identity, ()):
        yield Right(identity, "run", "command", command)
    if identity in _ROLES:
        yield Right(identity, "use", "role", _ROLES[identity])
