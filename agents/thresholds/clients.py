"""How a threshold worker reaches Kafka and Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.consumer.topic_reader import read_batches
from agents.producer import BatchProducer
from processing.records.batch import RecordBatch
from sinks.redis.comparison import RedisComparison
from sinks.redis.last_owners import LastOwners
from sinks.redis.publish_markers import PublishMarkers
from sinks.redis.thresholds import ThresholdPublisher
from topics.epoch import Epoch, read_epoch
from topics.kafka.reader import read_records, topic_state
from topics.kafka.topic_states import TopicState

Offsets = Mapping[int, int]
"""By partition."""


@dataclass(frozen=True)
class Clients:
    """Makes clients from an address, and reads topics; a simulation passes its own."""

    producer: Callable[[str], BatchProducer] = BatchProducer
    publisher: Callable[[str], ThresholdPublisher] = ThresholdPublisher
    publish_markers: Callable[[str], PublishMarkers] = PublishMarkers
    last_owners: Callable[[str], LastOwners] = LastOwners
    comparison: Callable[[str], RedisComparison] = RedisComparison
    read_epoch: Callable[[str], Awaitable[Epoch]] = read_epoch
    topic_state: Callable[[str, str], Awaitable[TopicState]] = topic_state
    read_batches: Callable[[str, str, Offsets, Offsets], AsyncIterator[RecordBatch]] = read_batches
    read_records: Callable[[str, str, Offsets, Offsets], AsyncIterator[Any]] = read_records
