"""What the real runtimes use, over the simulated world: consumer, producer, local store, clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from faust.types import TP

from agents.thresholds.checkpoint_writer import Row
from agents.thresholds.store import ContextStore
from processing.records.batch import Headers, RecordBatch
from processing.records.dead_letters import DeadLetter
from tests.simulation.broker import batch_of
from tests.simulation.loop import OWNER, Ended
from tests.simulation.process import BrokerAway, Process, StoreFailed
from topics.catalogue import CHANGELOG, DEAD_LETTERS, EVENTS, THRESHOLDS
from topics.dead_letters.messages import OutgoingRecord

if TYPE_CHECKING:
    from tests.simulation.worker import Worker

PORT_OF = {CHANGELOG.name: "changelog.append", THRESHOLDS.name: "thresholds.append"}
RECOVERED_AT_ONCE: Final = 20
STALL_S = 7.0
"""See `agents.health.stall_guard.MAX_STALL_S`."""


class Disk:
    """One worker's data directory: rows by partition, and the changelog offsets they hold."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[bytes, bytes]] = {}
        self.held: dict[int, tuple[int, int]] = {}
        """(epoch, changelog offset) by partition."""


class Store(ContextStore):
    """The real store over a dictionary instead of RocksDB."""

    def __init__(self, disk: Disk, epoch: int, process: Process | None = None) -> None:
        self.epoch = epoch
        self._disk, self._process = disk, process

    def get_row(self, partition: int, key: bytes) -> bytes | None:
        return self._disk.rows.get(partition, {}).get(key)

    def scan(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        yield from sorted(self._disk.rows.get(partition, {}).items())

    def page(self, partition: int, begin: bytes, count: int) -> list[tuple[bytes, bytes]]:
        return [row for row in self.scan(partition) if row[0] >= begin][:count]

    def write_rows(self, partition: int, rows: Iterable[Row], changelog_offset: int | None) -> None:
        def write() -> None:
            held = self._disk.rows.setdefault(partition, {})
            for key, row in rows:
                if row is None:
                    held.pop(key, None)
                else:
                    held[key] = row
            if changelog_offset is not None:
                self._disk.held[partition] = (self.epoch, changelog_offset)

        if self._process is None:
            write()
        else:
            self._process.do("store.write", write, StoreFailed)

    def has_table(self, partition: int) -> bool:
        return partition in self._disk.rows

    def release(self, partition: int) -> None:
        """Nothing is open."""

    def held_offset(self, partition: int) -> int | None:
        epoch, offset = self._disk.held.get(partition, (-1, -1))
        return offset if epoch == self.epoch else None


class Producer:
    """Stands in for `agents.producer.BatchProducer`."""

    def __init__(self, process: Worker) -> None:
        self._process = process
        self._broker = process.world.broker

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Disconnect."""

    @property
    def idempotent(self) -> bool:
        return self._broker.kafka

    async def send_rows(
        self, topic: str, partition: int, rows: Sequence[Row], last_headers: Headers = ()
    ) -> tuple[int, int]:
        placed: tuple[int, int] = await self.send_batch(topic, partition, rows, last_headers)
        return placed

    async def send_batch(
        self, topic: str, partition: int, batch: Sequence[Row], headers: Headers
    ) -> Any:
        """Send one record batch. All of its records get the headers; the last one's are read."""
        now, at = self._process.world.wall_ms, self._process.world.loop
        return await self._process.call(
            PORT_OF[topic],
            lambda: self._broker.append(topic, partition, batch, now(), at.now, headers),
        )

    async def send_dead_letters(self, letters: Iterable[DeadLetter]) -> None:
        for letter in letters:
            await self._process.call("dead_letters.append", lambda one=letter: self._keep(one))

    def _keep(self, letter: DeadLetter) -> None:
        group = dict(letter.headers)["headstart.group"]
        now = self._process.world.loop.now
        self._broker.append(DEAD_LETTERS.name, 0, [(group, letter.value)], 0, now)

    async def send_controls(self, records: Iterable[OutgoingRecord]) -> None:
        for record in records:
            await self._process.call("control.append", lambda one=record: self._control(one))

    def _control(self, record: OutgoingRecord) -> None:
        world = self._process.world
        if world.recreating:
            raise BrokerAway("the broker is being recreated")
        rows = [(record.key, record.value)]
        now_ms = world.wall_ms() + world.skews.get(self._process.name, 0)
        self._broker.append(
            EVENTS.name, record.partition, rows, now_ms, world.loop.now, record.headers
        )


class Consumer:
    """Stands in for Faust's consumer on the record path."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.ready = asyncio.Event()
        """Set when there may be something to fetch."""
        self.begin: dict[int, int] = {}
        self.position: dict[int, int] = {}
        self._done: dict[int, int] = {}
        self._committable: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    def reached(self) -> dict[int, int]:
        return {**self.begin, **self._done}

    def forget(self) -> None:
        self.begin = {}
        self.position, self._done, self._committable, self._committed = {}, {}, {}, {}

    def done(self, tp: TP, end: int, *, commit: bool = True) -> None:
        def note() -> None:
            self._done[tp.partition] = end
            if commit:
                self._committable[tp.partition] = end

        self._worker.do("done", note)

    def pause(self, tp: TP, full: bool) -> None:
        """Nothing: a lane here is never full."""

    def commit_done(self, tp: TP) -> None:
        if tp.partition in self._done:
            self._committable[tp.partition] = self._done[tp.partition]

    async def commit(self) -> None:
        """Commit what may be, as of now."""
        worker, offsets = self._worker, dict(self._committable)
        generation = worker.app.consumer_generation_id
        if offsets != self._committed:
            self._committed = offsets
            await worker.call(
                "group.commit", lambda: worker.group.commit(worker, generation, offsets)
            )

    async def earliest_offsets(self, place: TP) -> Mapping[TP, int]:
        logs = self._worker.broker.logs[place.topic]
        found = await self._worker.call("events.earliest", lambda: logs[place.partition].begin)
        return {place: found}

    async def highwaters(self, *places: TP) -> Mapping[TP, int]:
        logs = self._worker.broker.logs
        return {place: logs[place.topic][place.partition].stable for place in places}

    async def seek_wait(self, positions: Mapping[TP, int]) -> None:
        def seek() -> None:
            for tp, offset in positions.items():
                if tp.partition in self.position:  # else it was revoked meanwhile
                    self.position[tp.partition] = offset
            self.ready.set()

        await self._worker.call("consumer.seek", seek)


class Alive:
    """Stands in for `agents.health.stall_guard.StallGuard`: it notices a pause of the process."""

    def start(self) -> asyncio.Task[None]:
        return asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[arg-type]

    def check(self) -> None:
        process = OWNER.get()
        if process is not None and process.stalled > STALL_S:
            process.world.note(f"{process.name} notices that it was suspended")
            process.kill("was suspended")
            raise Ended


class App:
    """What the runtimes and the sweeper need of a Faust app."""

    def __init__(self, worker: Worker) -> None:
        self.consumer = Consumer(worker)
        self.consumer_generation_id = -1
        self.should_stop = False
        self.rebalancing = False
        self.opened = 0
        self.runtime: Any = None

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def topic_state(worker: Worker, topic: str) -> Any:
    """Stand in for `topics.kafka.reader.topic_state`."""
    logs = worker.broker.logs[topic]
    end = await worker.call("changelog.end", lambda: {p: log.end for p, log in enumerate(logs)})
    return SimpleNamespace(begin={p: log.begin for p, log in enumerate(logs)}, end=end)


async def read_epoch(worker: Worker) -> Any:
    """Stand in for `topics.epoch.read_epoch`."""
    return await worker.call("epochs.read", lambda: worker.world.epoch)


async def recover_batches(
    worker: Worker, topic: str, begin: Mapping[int, int], end: Mapping[int, int]
) -> AsyncIterator[RecordBatch]:
    """Stand in for `agents.consumer.topic_reader.read_batches`, in several fetches."""
    for partition in begin:
        log, place = worker.broker.logs[topic][partition], begin[partition]
        while place < end[partition]:
            upto = min(end[partition], place + RECOVERED_AT_ONCE)
            rows = await worker.call(
                "changelog.recover", lambda low=place, high=upto, of=log: of.read(low, high)
            )
            yield RecordBatch(
                topic,
                partition,
                place,
                upto,
                [record.offset for record in rows],
                [0] * len(rows),
                [record.key for record in rows],
                [record.value for record in rows],
            )
            place = upto


async def read_events(
    worker: Worker, topic: str, begin: Mapping[int, int], end: Mapping[int, int]
) -> AsyncIterator[RecordBatch]:
    """The same of events, in one fetch, with all that a record has."""
    for partition in begin:
        log, low, high = worker.broker.logs[topic][partition], begin[partition], end[partition]
        found = await worker.call("events.read", lambda of=log, a=low, b=high: of.read(a, b))
        yield batch_of(topic, partition, low, high, found)


async def read_records(
    worker: Worker, topic: str, begin: Mapping[int, int], end: Mapping[int, int]
) -> AsyncIterator[Any]:
    """Stand in for `topics.kafka.reader.read_records`."""
    for partition in begin:
        log = worker.broker.logs[topic][partition]
        rows = await worker.call(
            "changelog.read", lambda p=partition, of=log: of.read(begin[p], end[p])
        )
        for record in rows:
            yield SimpleNamespace(
                partition=partition, key=record.key, value=record.value, headers=record.headers
            )
