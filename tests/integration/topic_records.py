"""Reads a topic to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from topics.kafka.reader import read_records, topic_state


def read_whole_topic(kafka: str, topic: str, begin: Mapping[int, int] | None = None) -> list[Any]:
    """Return the records of a topic up to its end, each partition in its order.

    `begin`: the first offset of each partition; default: all that the topic has.
    """

    async def read() -> list[Any]:
        state = await topic_state(kafka, topic)
        first = begin or state.begin
        return [record async for record in read_records(kafka, topic, first, state.end)]

    return asyncio.run(read())
