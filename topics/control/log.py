"""Sends control records to partitions of `headstart.events`, with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from headstart.kafka_producer import BrokerUnreachable, end_producer, start_producer
from topics.catalogue import EVENTS
from topics.control.messages import Control, control_records
from topics.dead_letters.messages import OutgoingRecord
from topics.epoch import read_epoch
from topics.kafka.sender import send_all

PATIENCE_S: Final = 30.0
"""How long a failed send is retried."""
_RETRY_S: Final = 0.5


class NotEverywhere(RuntimeError):
    """A control record reached some partitions and not others."""

    def __init__(self, missing: Sequence[int], cause: BaseException) -> None:
        places = ", ".join(map(str, sorted(missing)))
        super().__init__(
            f"it did not reach partition {places} ({cause}); the others apply it already. "
            "Give the same command again when the broker answers: the later record holds"
        )


async def send_control(
    kafka: str,
    control: Control,
    operators_key: bytes | None = None,
    *,
    only: Sequence[int] | None = None,
    patience_s: float = PATIENCE_S,
) -> dict[int, int]:
    """Send a control record to every partition, or `only` some; return its offset by partition.

    Repeating it after a lost acknowledgement is harmless. Raises the errors of `read_epoch`,
    `BrokerUnreachable`, and `NotEverywhere` if a partition fails for `patience_s` seconds.
    """
    partitions = (await read_epoch(kafka)).partitions
    try:
        producer = await start_producer(kafka)
    except (KafkaError, OSError) as error:
        raise BrokerUnreachable(kafka, error) from error
    waiting = {
        each.partition: each
        for each in control_records(
            control, range(partitions) if only is None else only, operators_key
        )
    }
    offsets: dict[int, int] = {}
    deadline = asyncio.get_running_loop().time() + patience_s
    try:
        while waiting:
            answers = await asyncio.gather(
                *(_send(producer, each) for each in waiting.values()), return_exceptions=True
            )
            for partition, answer in zip(list(waiting), answers, strict=True):
                if isinstance(answer, int):
                    offsets[partition] = answer
                    del waiting[partition]
                elif not isinstance(answer, KafkaError | OSError):
                    raise answer
            failed = [answer for answer in answers if isinstance(answer, BaseException)]
            if waiting and asyncio.get_running_loop().time() > deadline:
                raise NotEverywhere(list(waiting), failed[0])
            if waiting:
                await asyncio.sleep(_RETRY_S)
    finally:
        await end_producer(producer, 5.0)
    return offsets


async def send_in_order(
    kafka: str,
    partition: int,
    controls: Sequence[Control],
    operators_key: bytes | None = None,
    *,
    patience_s: float = PATIENCE_S,
) -> list[int]:
    """Send control records to one partition, one after the other; return their offsets.

    Repeating one after a lost acknowledgement is harmless. Raises `BrokerUnreachable`, and
    `NotEverywhere` if one fails for `patience_s` seconds.
    """
    try:
        producer = await start_producer(kafka)
    except (KafkaError, OSError) as error:
        raise BrokerUnreachable(kafka, error) from error
    offsets = []
    try:
        for control in controls:
            (record,) = control_records(control, [partition], operators_key)
            offsets.append(await _send_with_retries(producer, record, patience_s))
    finally:
        await end_producer(producer, 5.0)
    return offsets


async def _send_with_retries(
    producer: AIOKafkaProducer, record: OutgoingRecord, patience_s: float
) -> int:
    deadline = asyncio.get_running_loop().time() + patience_s
    while True:
        try:
            return await _send(producer, record)
        except (KafkaError, OSError) as error:
            if asyncio.get_running_loop().time() > deadline:
                raise NotEverywhere([record.partition], error) from error
            await asyncio.sleep(_RETRY_S)


async def _send(producer: AIOKafkaProducer, record: OutgoingRecord) -> int:
    (offset,) = await send_all(producer, EVENTS.name, [record])
    return offset
