"""A Kafka client that finds no broker is closed: asyncio would report each as left open."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from headstart.shipping.volatile_broker import _read_epoch
from topics.kafka.groups import committed_offsets

NO_BROKER = "127.0.0.1:1"


@pytest.mark.parametrize(
    "ask",
    [
        lambda: _read_epoch(NO_BROKER, None),
        lambda: committed_offsets(NO_BROKER, "group", "topic", 1),
    ],
)
def test_none_is_left_open(
    ask: Callable[[], Awaitable[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    async def asked() -> None:
        with pytest.raises(KafkaError):
            await ask()
        gc.collect()

    asyncio.run(asked())
    assert "Unclosed" not in caplog.text
