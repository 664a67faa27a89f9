"""Finds open transactions that keep workers from reaching an offset."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from aiokafka.errors import KafkaError

from headstart.kafka_producer import BrokerUnreachable
from topics.catalogue import EVENTS
from topics.kafka.reader import LogTruncated
from topics.kafka.topic_states import describe_topics
from topics.kafka.transactions import open_transactions

REMEDY: Final = "have its producer commit or abort it; `headstart doctor` prints how to abort it"


async def holding_back(kafka: str, offsets: Mapping[int, int]) -> list[str]:
    """Describe the open transactions before offsets of `headstart.events`, given by partition.

    Empty where there are none, or the broker cannot be reached.
    """
    try:
        states = await describe_topics(kafka, [EVENTS.name])
        found = await open_transactions(kafka, states.values())
    except (BrokerUnreachable, LogTruncated, KafkaError, OSError):
        return []
    now = time.time()
    return [
        each.described(now)
        for each in found
        if each.partition in offsets and each.offset < offsets[each.partition]
    ]
