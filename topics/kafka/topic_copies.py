"""Describes topics as they are, so that they can be deleted and created again alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from aiokafka.admin import NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from headstart.kafka_producer import BrokerUnreachable
from topics.catalogue import Topic
from topics.kafka.admin import admin_client, partition_counts
from topics.kafka.asking_again import ask_again
from topics.kafka.topic_states import describe_topics

_OF_TOPIC: Final = 1
"""Source of a setting that was given to the topic itself, in the broker's answer."""


class TopicCopy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic to be created: `copies` of each partition, and the settings given to it."""

    name: str
    partitions: int
    copies: int
    settings: Mapping[str, str]


async def describe_copies(kafka: str, topics: Iterable[Topic], partitions: int) -> list[TopicCopy]:
    """Return topics as they are; of the catalogue's settings those that a topic lacks are added.

    `partitions`: of those that have as many as the log epoch; a topic may have been given more.
    Topics that do not exist are left out. Raises `BrokerUnreachable`.
    """
    wanted = {topic.name: topic for topic in topics}
    states = await describe_topics(kafka, wanted)
    settings = await _own_settings(kafka, states)
    return [
        TopicCopy(
            name,
            partitions if topic.partitioned else 1,
            max(1, states[name].copies),
            {**topic.configuration(), **settings[name]},
        )
        for name, topic in wanted.items()
        if name in states
    ]


async def create_copies(kafka: str, copies: Iterable[TopicCopy]) -> None:
    """Create topics, none of which exists. Raises `BrokerUnreachable` and `KafkaError`."""
    for each in copies:
        new = NewTopic(each.name, each.partitions, each.copies, topic_configs=dict(each.settings))
        async with admin_client(kafka) as client:
            response = await client.create_topics([new])
        for name, code, *reason in response.topic_errors:
            if code:
                error = for_code(code)
                raise error(f"{name}: {reason[0] if reason else error.__name__}")


async def add_partition(kafka: str, names: Iterable[str]) -> None:
    """Give each of the topics that exist one partition more.

    Raises `BrokerUnreachable` and `KafkaError`.
    """
    counts = await partition_counts(kafka, names)
    try:
        async with admin_client(kafka) as client:
            await client.create_partitions(
                {name: NewPartitions(count + 1) for name, count in counts.items()}
            )
    except (KafkaError, OSError) as error:
        raise BrokerUnreachable(kafka, error) from error


async def _own_settings(kafka: str, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return by topic the settings that it does not have from the broker's defaults."""
    wanted = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]

    async def ask() -> Any:
        async with admin_client(kafka) as client:
            return await client.describe_configs(wanted) if wanted else []

    return {
        resource[3]: {
            name: value
            for name, value, _read_only, source, *_more in resource[4]
            if source == _OF_TOPIC and value is not None
        }
        for answer in await ask_again(kafka, ask)
        for resource in answer.resources
        if resource[0] == 0
    }
