"""A worker of shared models over topics in memory, which can be killed at any line of the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import orjson
from faust.types import TP

from agents.config import WorkerConfig
from agents.environment import Environment
from agents.predictions.agent import PredictionsAgent
from agents.thresholds.clients import Clients
from headstart.keys import event_key
from headstart.prediction.interface import ToolCall
from headstart.prediction.shared.fleet_model import FleetModel
from headstart.prediction.shared.shared_predictor import SharedCallPredictor
from processing.records.batch import RecordBatch
from processing.records.dead_letters import DeadLetter
from topics.catalogue import DECISIONS, MODELS
from topics.epoch import Epoch
from topics.kafka.topic_states import TopicState
from topics.models.records import StoredModel, decode_model

TP0 = TP(DECISIONS.name, 0)
NOW = 1_795_713_500_000
EPOCH = Epoch(1_800_000_000, 1)
KEY = b"a secret of the tests"


def taught(tenant: str, users: int = 3, turns: int = 4) -> list[dict[str, Any]]:
    """What an executor of a tenant emits."""
    events: list[dict[str, Any]] = []
    predictor = SharedCallPredictor(lambda event: events.append(dict(event)), hash_key=KEY)
    for user in range(users):
        run = predictor.run(user_id=f"u{user}")
        run.user(f"refund order W{user}0{user}")
        for turn in range(turns):
            run.guess()
            run.calls([ToolCall("find", {"order": f"W{user}0{user}", "page": turn % 2})])
            run.result("find", {"found": turn})
        run.calls([])
    return [{**event, "tenant": tenant, "workflow_type": "refund"} for event in events]


def frames(events: Sequence[Mapping[str, Any]], size: int = 1) -> list[bytes]:
    """Records with `size` events each."""
    return [orjson.dumps(events[at : at + size]) for at in range(0, len(events), size)]


def replayed(values: Sequence[bytes], tenant: str) -> FleetModel:
    """The oracle: a plain single pass over the log."""
    model = FleetModel()
    for value in values:
        for event in orjson.loads(value):
            if event["tenant"] == tenant:
                model.apply(event)
    return model


@dataclass
class Topics:
    """What is on the broker."""

    log: list[bytes] = field(default_factory=list)
    models: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    compacted: int = 0
    """Below this offset only the last record of each key is left."""
    letters: list[DeadLetter] = field(default_factory=list)
    begin: int = 0
    """The first offset of the log that retention has left."""

    def kept(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        """The records of the models' topic."""
        last = {key: offset for offset, (key, _) in enumerate(self.models)}
        for offset, (key, value) in enumerate(self.models):
            if offset >= self.compacted or last[key] == offset:
                yield offset, key, value

    def stored(self, tenant: str) -> StoredModel:
        """The last state of a tenant."""
        key = event_key(tenant, "refund")
        return decode_model([value for found, value in self.models if found == key][-1])

    def read_models(self, begin: int, end: int) -> RecordBatch:
        found = [each for each in self.kept() if begin <= each[0] < end]
        offsets, keys, values = [list(each) for each in zip(*found, strict=True)] or [[], [], []]
        times = [NOW] * len(offsets)
        return RecordBatch(MODELS.name, 0, begin, end, offsets, times, keys, values)


class MemoryProducer:
    """Appends to topics in memory."""

    idempotent = True

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def send_rows(
        self, topic: str, partition: int, rows: Sequence[tuple[bytes, bytes | None]]
    ) -> tuple[int, int]:
        assert (topic, partition) == (MODELS.name, 0)
        first = len(self._topics.models)
        self._topics.models += rows
        return first, len(self._topics.models) - 1

    async def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        self._topics.letters += letters


class Consumer:
    """The part of Faust's consumer that the agent uses."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.committed = 0

    def done(self, _tp: TP, end: int, *, commit: bool = True) -> None:
        self.committed = end if commit else self.committed

    async def earliest_offsets(self, *places: TP) -> Mapping[TP, int]:
        return dict.fromkeys(places, self._topics.begin)

    def pause(self, _tp: TP, _paused: bool) -> None: ...


class Worker:
    """One process; `kill` leaves everything as it is."""

    def __init__(self, topics: Topics, config: WorkerConfig, epoch: Epoch = EPOCH) -> None:
        self.topics, self.consumer = topics, Consumer(topics)
        app: Any = SimpleNamespace(consumer=self.consumer, consumer_generation_id=1, opened=0)
        clients: Any = Clients(
            producer=lambda _kafka: MemoryProducer(topics),  # type: ignore[arg-type,return-value]
            topic_state=self._state, read_batches=self._batches, read_records=self._records,
        )  # fmt: skip
        self.agent = PredictionsAgent(app, config, epoch, Environment(exit=self._exit), clients)
        self.error: BaseException | None = None
        self.position = 0

    def _exit(self, _where: str, error: BaseException) -> None:
        self.error = error

    async def _state(self, _kafka: str, topic: str) -> TopicState:
        held = self.topics.models if topic == MODELS.name else self.topics.log
        return TopicState(topic, 1, {0: 0}, {0: len(held)})

    async def _batches(
        self, _kafka: str, _topic: str, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> AsyncIterator[RecordBatch]:
        if batch := self.topics.read_models(begin[0], end[0]):
            yield batch

    async def _records(
        self, _kafka: str, _topic: str, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> AsyncIterator[Any]:
        for offset, key, value in self.topics.kept():
            if begin[0] <= offset < end[0]:
                yield SimpleNamespace(key=key, value=value, offset=offset)

    async def start(self) -> int:
        """Open the partition; return where it begins."""
        self.position = (await self.agent.positions({TP0}, {}))[TP0]
        return self.position

    async def feed(self, end: int, size: int = 5) -> None:
        """Have records applied up to an offset, in batches of some."""
        values = self.topics.log
        while self.position < end:
            begin, stop = self.position, min(end, self.position + size)
            batch = RecordBatch(
                DECISIONS.name, 0, begin, stop, [*range(begin, stop)], [NOW] * (stop - begin),
                [None] * (stop - begin), [*values[begin:stop]],
            )  # fmt: skip
            await self.agent.accept(TP0, 1, batch)
            self.position = stop
        while not self.agent.idle() and self.error is None:  # noqa: ASYNC110 - it sets no event
            await asyncio.sleep(0.001)
        if self.error is not None:
            raise self.error

    async def store(self) -> None:
        """Have all states written that changed."""
        (owned,) = self.agent._owned.values()
        changed = [e for e in owned.models.entries.values() if not e.is_stored]
        await self.agent._store.store(owned, changed)

    async def file(self) -> None:
        """Have all states written to the directory that changed."""
        (owned,) = self.agent._owned.values()
        await self.agent._file(owned, 0.0, at_once=True)

    async def kill(self) -> None:
        """End without writing anything."""
        for task in self.agent._tasks:
            task.cancel()
        await self.agent._intake.close(0.1)

    def state(self, tenant: str) -> bytes:
        """The state in memory, or its file."""
        (owned,) = self.agent._owned.values()
        return self.agent._states.state_of(owned.models.entries[event_key(tenant, "refund")])
