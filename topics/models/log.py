"""Reads `headstart.models` and the end of `headstart.decisions`; sends resets to that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import NamedTuple

from aiokafka.errors import KafkaError
from msgspec.structs import replace

from headstart.kafka_producer import BrokerUnreachable, end_producer, start_producer
from headstart.keys import key_names
from headstart.partitioner import partition_for_key
from topics.catalogue import DECISIONS, MODELS
from topics.dead_letters.messages import OutgoingRecord
from topics.epoch import read_minted_epoch
from topics.kafka.admin import TopicsMissing
from topics.kafka.reader import read_records, topic_state
from topics.kafka.sender import send_all
from topics.models.records import NotAModel, StoredModel, decode_model, is_ahead, is_model_key
from topics.used_partitions import used_partitions

_END_S = 5.0


class FoundModel(NamedTuple):
    """One state of a model in the topic. `at`: when it was written, Unix ms.

    `read_models` leaves out the state itself, unless it is asked for; `size`: its bytes.
    """

    key: bytes
    partition: int
    at: int
    model: StoredModel
    size: int

    @property
    def tenant(self) -> str:
        """Of the model."""
        return key_names(self.key)[0]

    @property
    def workflow_type(self) -> str:
        """Of the model."""
        return key_names(self.key)[1]


class LogEnd(NamedTuple):
    """The end of `headstart.decisions`: the log epoch, and the next offset of each partition."""

    epoch: int
    end: Mapping[int, int]

    def of(self, key: bytes) -> tuple[int, int]:
        """Return the epoch and the end of a key's partition."""
        return self.epoch, self.end[partition_for_key(key, len(self.end))]

    def is_ahead(self, key: bytes, version: tuple[int, int]) -> bool:
        """Return whether a version of a key's model is later than the log."""
        return is_ahead(version, *self.of(key))


async def read_log_end(kafka: str) -> LogEnd:
    """Return the end of `headstart.decisions`. Read it after the versions to compare with it.

    Raises `BrokerUnreachable`, `TopicsMissing` and `EpochUnreadable`.
    """
    epoch, _partitions = await read_minted_epoch(kafka)
    states = {DECISIONS.name: await topic_state(kafka, DECISIONS.name)}
    return LogEnd(epoch.number, used_partitions(states, epoch.partitions)[DECISIONS.name].end)


async def read_states(kafka: str) -> list[FoundModel]:
    """Return every state that the topic still has, in order; damaged records are left out.

    Raises `BrokerUnreachable`, `TopicsMissing` and `LogTruncated`.
    """
    return [each async for each in _states(kafka, None)]


async def _states(kafka: str, partitions: Iterable[int] | None) -> AsyncIterator[FoundModel]:
    state = await topic_state(kafka, MODELS.name)
    epoch, _partitions = await read_minted_epoch(kafka)
    count = min(state.partitions, epoch.partitions)
    wanted = state.end if partitions is None else {n: state.end[n] for n in partitions}
    async for record in read_records(
        kafka, MODELS.name, {n: state.begin[n] for n in wanted}, wanted
    ):
        if not is_model_key(record.key):
            continue
        if partition_for_key(record.key, count) != record.partition:
            continue
        try:
            model = decode_model(record.value)
        except NotAModel:
            continue
        size = len(model.state)
        yield FoundModel(record.key, record.partition, record.timestamp, model, size)


async def read_models(
    kafka: str, partitions: Iterable[int] | None = None, *, states: bool = False
) -> list[FoundModel]:
    """Return the last state of each model, by tenant and workflow type.

    `partitions`: which to read. `states`: whether to keep the bytes of the states. Raises
    `BrokerUnreachable`, `TopicsMissing` and `LogTruncated`.
    """
    last: dict[bytes, FoundModel] = {}
    async for each in _states(kafka, partitions):
        model = each.model if states else replace(each.model, state=b"")
        last[each.key] = each._replace(model=model)
    return sorted(last.values(), key=lambda each: (each.tenant, each.workflow_type))


async def count_models(kafka: str) -> int:
    """Return how many models have learned something; 0 where there is no topic of them.

    Raises `BrokerUnreachable` and `LogTruncated`.
    """
    try:
        return sum(each.size > 0 for each in await read_models(kafka))
    except TopicsMissing:
        return 0


async def send_resets(kafka: str, records: Sequence[OutgoingRecord]) -> list[int]:
    """Send resets; return their offsets. Raises `BrokerUnreachable`."""
    try:
        producer = await start_producer(kafka)
        try:
            return await send_all(producer, DECISIONS.name, records)
        finally:
            await end_producer(producer, _END_S)
    except (KafkaError, OSError) as error:
        raise BrokerUnreachable(kafka, error) from error
