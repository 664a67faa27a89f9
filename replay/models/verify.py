"""Compares shared models in `headstart.models` and Redis with a replay of `headstart.decisions`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headstart.keys import event_key, key_names
from headstart.partitioner import partition_for_key
from headstart.prediction.shared.fleet_model import FleetModel
from headstart.prediction.state_format import UnknownState
from processing.predictions.entries import LoadedModels, ModelEntry
from processing.predictions.partition_models import PartitionModels
from processing.records.batch import RecordBatch, empty_batch
from replay.log.record_batches import batched
from replay.models.comparison import (
    DIFFERENT,
    EQUAL,
    ModelComparison,
    snapshot_of_log,
    states_of_log,
)
from sinks.redis.models import ServedModel, served_models
from topics.catalogue import DECISIONS
from topics.epoch import Epoch
from topics.kafka.reader import read_records, topic_state
from topics.kafka.topic_states import TopicState
from topics.models.log import FoundModel, read_states

_CUT: Final = "the log does not have what the stored state was learned from"


@dataclass(frozen=True)
class _Target:
    """What is expected of a key at an offset."""

    key: bytes
    offset: int
    expected: bytes
    is_snapshot: bool


async def verify_models(
    kafka: str,
    redis: str,
    epoch: Epoch,
    operators_key: bytes | None,
    tenant: str | None = None,
    report: Callable[[str], None] = lambda _line: None,
) -> list[ModelComparison]:
    """Return the comparison of each model. It only reads, and joins no consumer group.

    Raises `BrokerUnreachable`, `TopicsMissing`, `RedisUnreachable`, and `LogTruncated` if retention
    is faster than the replay.
    """
    states = [s for s in await read_states(kafka) if tenant in (None, s.tenant)]
    served = {event_key(*each.names): each for each in await served_models(redis, tenant)}
    log = await topic_state(kafka, DECISIONS.name)  # after the versions to compare with its end
    keys = sorted({each.key for each in states} | served.keys())
    places = {key: partition_for_key(key, epoch.partitions) for key in keys}
    found: list[ModelComparison] = []
    for partition in sorted(set(places.values())):
        report(f"replaying partition {partition} of {DECISIONS.name}")
        models = _PartitionReplay(partition, epoch, operators_key, log)
        for key in (key for key in keys if places[key] == partition):
            models.plan(key, [each for each in states if each.key == key], served.get(key))
        await models.run(kafka)
        found += models.comparisons.values()
    return sorted(found, key=lambda each: (each.tenant, each.workflow_type))


class _PartitionReplay:
    def __init__(
        self, partition: int, epoch: Epoch, operators_key: bytes | None, log: TopicState
    ) -> None:
        self._partition, self._epoch = partition, epoch
        self._begin, self._end = log.begin[partition], log.end[partition]
        self._loaded = LoadedModels()
        self._spilled: dict[bytes, bytes] = {}
        self.models = PartitionModels(
            partition, epoch.partitions, epoch.number, self._load, self._loaded, operators_key
        )
        self.comparisons: dict[bytes, ModelComparison] = {}
        self._targets: list[_Target] = []

    def _load(self, entry: ModelEntry) -> FleetModel:
        state = self._spilled.pop(entry.key, b"")
        return FleetModel.from_bytes(state) if state else FleetModel()

    def plan(self, key: bytes, states: Sequence[FoundModel], served: ServedModel | None) -> None:
        """Choose where the replay of a key begins, and what it is compared with.

        `states`: all that `headstart.models` still has of it.
        """
        comparison = self.comparisons[key] = ModelComparison(*key_names(key), self._partition)
        end = self._epoch.number, self._end
        usable = states_of_log(states, end, comparison)
        served = snapshot_of_log(served, end, comparison)
        base = self._base(usable, comparison)
        if base is None:
            return
        self.models.entries[key] = ModelEntry(key, self._partition, base[0])
        self._spilled[key] = base[1]
        self._plan_state(key, usable, base[0], comparison)
        if served is not None:
            self._plan_snapshot(key, served, base[0], comparison)

    def _plan_state(
        self, key: bytes, states: Sequence[FoundModel], base: int, comparison: ModelComparison
    ) -> None:
        newest = max((each.model for each in states), key=lambda each: each.version, default=None)
        if comparison.stored == DIFFERENT:
            return
        if newest is None:
            comparison.why.append("no state is stored yet")
        elif newest.epoch == self._epoch.number and newest.offset > base:
            comparison.offset = newest.offset
            self._targets.append(_Target(key, newest.offset, newest.state, is_snapshot=False))
        else:
            comparison.why.append(_CUT)

    def _plan_snapshot(
        self, key: bytes, served: ServedModel, base: int, comparison: ModelComparison
    ) -> None:
        if served.offset < base:
            comparison.why.append(f"the snapshot in Redis: {_CUT}")
            return
        comparison.offset = max(comparison.offset, served.offset)
        self._targets.append(_Target(key, served.offset, served.snapshot, is_snapshot=True))

    def _base(
        self, states: Sequence[FoundModel], comparison: ModelComparison
    ) -> tuple[int, bytes] | None:
        """Return the offset and the state from which a key is replayed: the oldest that can be
        read. None: there is no such state, and the comparison has the reason."""
        own = [each.model for each in states if each.model.epoch == self._epoch.number]
        if self._begin == 0 and len(own) == len(states) and all(each.offset >= 0 for each in own):
            return -1, b""
        usable = [each for each in own if each.offset + 1 >= self._begin]
        unreadable = ""
        for each in sorted(usable, key=lambda each: each.version):
            if not (unreadable := _unreadable(each.state)):
                return each.offset, each.state
        if unreadable:
            comparison.stored = DIFFERENT
        comparison.why.append(f"the stored state: {unreadable}" if unreadable else _CUT)
        return None

    async def run(self, kafka: str) -> None:
        """Replay up to the last target, and compare at each."""
        waiting = sorted(self._targets, key=lambda each: each.offset)
        bases = [self.models.entries[each.key].offset + 1 for each in waiting]
        if not waiting:
            return
        begin = max(self._begin, min(bases))
        self._compare([each for each in waiting if each.offset < begin])
        waiting = [each for each in waiting if each.offset >= begin]
        cuts = sorted({each.offset + 1 for each in waiting})
        async for batch in _batches(kafka, self._partition, begin, cuts):
            self._apply(batch)
            reached = [each for each in waiting if each.offset < batch.end]
            self._compare(reached)
            waiting = waiting[len(reached) :]
        self._compare(waiting)  # where the last records are gone

    def _apply(self, batch: RecordBatch) -> None:
        position = 0
        while position < len(batch):
            position = self.models.apply(batch, position).end
            for entry in self._loaded.excess():
                model = entry.model
                self._spilled[entry.key] = b"" if model is None else model.to_bytes()

    def _compare(self, targets: Iterable[_Target]) -> None:
        for target in targets:
            entry = self.models.entries[target.key]
            model, comparison = self.models.model(entry), self.comparisons[target.key]
            comparison.events = model.version  # targets come in the order of their offsets
            if target.is_snapshot:
                equal = model.snapshot() == target.expected
                comparison.served = EQUAL if equal else DIFFERENT
                what = "the snapshot in Redis"
            else:
                equal = _is_state_of(model, target.expected)
                comparison.stored = EQUAL if equal else DIFFERENT
                what = "the stored state"
            if not equal:
                comparison.why.append(f"{what} at offset {target.offset} is not that of the log")


def _unreadable(state: bytes) -> str:
    """Return why a state cannot be read; empty if it can."""
    try:
        if state:
            FleetModel.from_bytes(state)
    except UnknownState as error:
        return str(error)
    return ""


def _is_state_of(model: FleetModel, state: bytes) -> bool:
    """Return whether a stored state is that of a model; another machine may compress it to
    other bytes."""
    expected = model.to_bytes() if model.version else b""
    if state == expected or not state:
        return state == expected
    try:
        return FleetModel.from_bytes(state).to_bytes() == expected
    except UnknownState:
        return False


async def _batches(
    kafka: str, partition: int, begin: int, cuts: Sequence[int]
) -> AsyncIterator[RecordBatch]:
    """Yield the records up to the last of some offsets; none of them is within a batch."""
    for cut in cuts:
        records = read_records(kafka, DECISIONS.name, {partition: begin}, {partition: cut})
        async for batch in batched(records, DECISIONS.name, partition, begin):
            yield batch
        yield empty_batch(DECISIONS.name, partition, cut)  # where the last records are gone
        begin = cut
