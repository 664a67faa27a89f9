"""One broker of a cluster is away: its questions are asked again, and nothing ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.consumer import AIOKafkaConsumer
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
)

from headstart.kafka_producer import BrokerUnreachable
from topics.catalogue import EVENTS
from topics.epoch import Epoch, read_epoch
from topics.kafka import asking_again
from topics.kafka.asking_again import ask_again
from topics.kafka.topic_states import describe_topics


def failing(*errors: Exception) -> Callable[..., None]:
    """Raise one error after the other, each once."""
    left = list(errors)

    def fail(*_args: object, **_more: object) -> None:
        if left:
            raise left.pop(0)

    return fail


def asked(patience_s: float, *errors: Exception) -> str:
    fail = failing(*errors)

    async def ask() -> str:
        fail()
        return "answered"

    return asyncio.run(ask_again("a:1", ask, patience_s))


def test_what_passes_by_itself_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking_again, "_RETRY_S", 0.0)
    assert asked(60.0, NodeNotReadyError(), KafkaConnectionError()) == "answered"
    # Of a broker that stands still: aiokafka's own, and those of our limits.
    assert asked(60.0, KafkaTimeoutError(), TimeoutError()) == "answered"
    with pytest.raises(BrokerUnreachable, match="a:1"):
        asked(-1.0, NodeNotReadyError())
    with pytest.raises(BrokerUnreachable, match="a:1"):
        asked(-1.0, TimeoutError())
    with pytest.raises(TopicAuthorizationFailedError):
        asked(60.0, TopicAuthorizationFailedError())


@pytest.mark.integration
def test_topics_and_the_epoch_are_read_past_a_dead_broker(
    kafka: str, log_epoch: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a cluster: the client asks a broker that is in its metadata, and dead."""
    monkeypatch.setattr(asking_again, "_RETRY_S", 0.0)
    for of, name in (
        (AIOKafkaAdminClient, "list_topics"),
        (AIOKafkaAdminClient, "describe_topics"),
        (AIOKafkaConsumer, "beginning_offsets"),
        (AIOKafkaConsumer, "seek_to_beginning"),
    ):
        original, fail = getattr(of, name), failing(NodeNotReadyError(), NodeNotReadyError())

        async def first_fails(
            self: object, *args: object, _call: object = original, _fail: object = fail
        ) -> object:
            await asyncio.sleep(0)
            _fail()  # type: ignore[operator]
            return await _call(self, *args)  # type: ignore[operator]

        monkeypatch.setattr(of, name, first_fails)
    assert asyncio.run(read_epoch(kafka)) == log_epoch
    assert asyncio.run(describe_topics(kafka, [EVENTS.name]))[EVENTS.name].partitions == 4
