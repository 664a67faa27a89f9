"""Asks a cluster again when one of its brokers is away, and others take over what it led."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aiokafka.errors import KafkaError, KafkaTimeoutError

from headstart.kafka_producer import BrokerUnreachable

PATIENCE_S: Final = 20.0
"""Longer than a cluster takes to notice a dead broker (`broker.session.timeout.ms`, 9 s), and than
one request to a broker that stands still (10 s)."""
_RETRY_S: Final = 0.3

T = TypeVar("T")


async def ask_again(
    kafka: str, ask: Callable[[], Awaitable[T]], patience_s: float = PATIENCE_S
) -> T:
    """Return what `ask` returns; call it again after errors that pass by themselves.

    Raises `BrokerUnreachable` after `patience_s` seconds of them, and at once whatever else `ask`
    raises, such as `BrokerUnreachable` when none of the brokers answers.
    """
    deadline = asyncio.get_running_loop().time() + patience_s
    while True:
        try:
            return await ask()
        except (KafkaError, TimeoutError) as error:
            if not passes(error):
                raise
            if asyncio.get_running_loop().time() > deadline:
                raise BrokerUnreachable(kafka, error) from error
        await asyncio.sleep(_RETRY_S)


def passes(error: BaseException) -> bool:
    """Return whether an error passes by itself, such as when another broker takes over.

    A broker that stands still, or no longer answers, shows as one of the time-outs.
    """
    if isinstance(error, KafkaError):
        return error.retriable or isinstance(error, KafkaTimeoutError)
    return isinstance(error, (ConnectionError, TimeoutError))
