"""Order per key under every failure: nothing newer goes out before the oldest unacknowledged.

The producer is a stand-in, because a broker does not fail on demand between two frames of a key.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from aiokafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.partitioner import partition_for_key
from headstart.shipping import producer_connection
from headstart.shipping import sender as sending
from headstart.shipping.sender import Sender
from tests.patience import until_in_loop

MOST_FRAMES = 2
"""Of a record batch."""
OUTCOMES = ["ok", "refused at once", "lost", "stored, but the answer is lost"]


@dataclass
class Broker:
    """A log that accepts frames, fails as configured, and then recovers."""

    failures: list[str] = field(default_factory=list)
    largest: int = 10_000
    log: list[tuple[bytes, list[int]]] = field(default_factory=list)
    started: int = 0
    partitions: int = 2
    recreated: Callable[[], None] = lambda: None

    async def start(self, _kafka: str, **_settings: Any) -> Producer:
        if self.failures and self.failures.pop(0) == "refused at once":
            raise OSError("no route")
        self.started += 1
        return Producer(self)


class Batch:
    """The frames of one record batch."""

    def __init__(self) -> None:
        self.frames: list[tuple[bytes, bytes]] = []

    def append(self, *, key: bytes, value: bytes, timestamp: None) -> object:
        if len(self.frames) >= MOST_FRAMES:
            return None
        self.frames.append((key, value))
        return True


@dataclass
class Producer:
    """Fails by the broker's list; answers later, in an order of its own."""

    broker: Broker
    kinds = (False,)
    ended: bool = False

    def compresses(self, _size: int) -> bool:
        return False

    def batch(self, *, compressed: bool) -> Batch:
        return Batch()

    async def partitions(self, _topic: str) -> int:
        return self.broker.partitions

    def watch_partitions(self, _topic: str, count: int, changed: Callable[[], None]) -> None:
        assert count == self.broker.partitions
        self.broker.recreated = changed

    async def send(
        self, batch: Batch, _topic: str, partition: int, *, compressed: bool
    ) -> asyncio.Future[None]:
        assert not self.ended, "sent through a producer that has ended"
        await asyncio.sleep(0)
        outcome = self.broker.failures.pop(0) if self.broker.failures else "ok"
        if outcome == "refused at once":
            raise KafkaTimeoutError
        future = asyncio.get_running_loop().create_future()
        error: KafkaError | None = None if outcome == "ok" else KafkaTimeoutError()
        if sum(len(value) for _, value in batch.frames) > self.broker.largest:
            error = MessageSizeTooLargeError()
        elif outcome != "lost":
            count = self.broker.partitions
            assert {partition_for_key(key, count) for key, _ in batch.frames} == {partition}
            self.broker.log += [(key, orjson.loads(value)) for key, value in batch.frames]
        loop = asyncio.get_running_loop()
        loop.call_later(0.0001 * (len(batch.frames) % 3), settle, future, error)
        return future

    async def end(self, _seconds: float) -> None:
        await asyncio.sleep(0)
        self.ended = True


def settle(future: asyncio.Future[None], error: KafkaError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


class Receipts:
    """What became of every event."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.gone: list[bytes] = []
        self.old = False
        self._changed = asyncio.Event()

    async def have(self, count: int) -> None:
        while len(self.acknowledged) + len(self.gone) < count:
            await self._changed.wait()
            self._changed.clear()

    def delivered(self) -> None:
        self.acknowledged.append(1)
        self._changed.set()

    def refused(self, event: bytes, _reason: str) -> None:
        self.gone.append(event)
        self._changed.set()

    def expired(self) -> bool:
        return self.old


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Broker], None]:
    monkeypatch.setattr(producer_connection, "RETRY_S", 0.0)
    return lambda broker: monkeypatch.setattr(producer_connection, "start_producer", broker.start)


async def send(events: list[tuple[bytes, int]], receipts: Receipts, pause: int = 3) -> None:
    sender = Sender("b", "t")
    for count, (key, position) in enumerate(events):
        sender.add(key, b"%d" % position, receipts, 0.0)
        if not count % pause:
            await asyncio.sleep(0)
    await receipts.have(len(events))
    assert sender.waiting_bytes == 0
    await sender.close()


def deduplicated(log: list[tuple[bytes, list[int]]]) -> dict[bytes, list[int]]:
    """What a receiver keeps that drops positions at or below the last seen of a key."""
    kept: dict[bytes, list[int]] = defaultdict(list)
    for key, positions in log:
        for position in positions:
            if not kept[key] or position > kept[key][-1]:
                kept[key].append(position)
    return kept


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=40),
    st.lists(st.sampled_from(OUTCOMES), max_size=25),
    st.integers(1, 7),
)
def test_a_receiver_that_drops_by_position_has_everything_once(
    keys: list[bytes], failures: list[str], frame: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        broker, receipts = Broker(list(failures)), Receipts()
        patch.setattr(producer_connection, "RETRY_S", 0.0)
        patch.setattr(sending, "FRAME_EVENTS", frame)
        patch.setattr(producer_connection, "start_producer", broker.start)
        events = [(key, position) for position, key in enumerate(keys)]
        asyncio.run(asyncio.wait_for(send(events, receipts), 60))
    wanted: dict[bytes, list[int]] = defaultdict(list)
    for key, position in events:
        wanted[key].append(position)
    assert deduplicated(broker.log) == wanted
    assert not receipts.gone


def test_a_frame_that_the_broker_finds_too_large_is_halved_and_one_event_given_up(
    no_waiting: Callable[[Broker], None],
) -> None:
    broker, receipts = Broker(largest=12), Receipts()
    no_waiting(broker)
    events = [(b"k", n) for n in (*range(10), 10**15, *range(10, 14))]
    asyncio.run(asyncio.wait_for(send(events, receipts, pause=99), 60))
    assert deduplicated(broker.log) == {b"k": list(range(14))}
    assert receipts.gone == [b"%d" % 10**15]


def test_expired_events_are_not_sent(no_waiting: Callable[[Broker], None]) -> None:
    broker, receipts = Broker(), Receipts()
    no_waiting(broker)
    receipts.old = True
    asyncio.run(asyncio.wait_for(send([(b"k", 1), (b"k", 2)], receipts), 60))
    assert broker.log == []
    assert receipts.gone == [b"1", b"2"]


def test_keys_go_to_the_partitions_of_a_topic_that_was_created_again(
    no_waiting: Callable[[Broker], None],
) -> None:
    """The stand-in compares the partition of each key with the number it has."""
    broker, receipts = Broker(), Receipts()
    no_waiting(broker)
    keys = [b"%d" % number for number in range(20)]

    async def run() -> None:
        sender = Sender("b", "t")
        for count, partitions in enumerate((2, 9, 4), start=1):
            if broker.partitions != partitions:
                broker.partitions = partitions
                broker.recreated()
            for key in keys:
                sender.add(key, b"%d" % count, receipts, 0.0)
            await receipts.have(len(keys) * count)
        await sender.close()

    asyncio.run(asyncio.wait_for(run(), 60))
    assert deduplicated(broker.log) == {key: [1, 2, 3] for key in keys}


def test_closing_ends_batches_in_flight(no_waiting: Callable[[Broker], None]) -> None:
    broker = Broker(["lost"] * 10_000)
    no_waiting(broker)

    async def run() -> None:
        sender, receipts = Sender("b", "t"), Receipts()
        for number in range(5):
            sender.add(b"%d" % number, b"1", receipts, 0.0)
        await asyncio.sleep(0.01)
        await sender.close()
        assert receipts.acknowledged == []

    asyncio.run(asyncio.wait_for(run(), 60))


def test_events_added_while_a_frame_is_in_flight_linger(
    no_waiting: Callable[[Broker], None],
) -> None:
    broker, receipts = Broker(), Receipts()
    no_waiting(broker)

    async def run() -> None:
        sender, linger_s = Sender("b", "t"), 2.0
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(linger_s - now % linger_s)  # when all frames are cut
        sender.add(b"k", b"0", receipts, linger_s)
        await asyncio.sleep(0.02)
        assert broker.log == []
        await receipts.have(1)
        sender.add(b"k", b"1", receipts, linger_s)
        await asyncio.sleep(0.02)
        sender.add(b"k", b"2", receipts, linger_s)
        await receipts.have(3)
        await sender.close()

    asyncio.run(asyncio.wait_for(run(), 60))
    assert broker.log == [(b"k", [0]), (b"k", [1, 2])]


def test_frames_due_together_are_sent_together(no_waiting: Callable[[Broker], None]) -> None:
    broker, receipts = Broker(), Receipts()
    no_waiting(broker)
    sent: list[Batch] = []
    keys = [b"%d" % number for number in range(20)]

    async def run() -> None:
        sender = Sender("b", "t")
        for key in keys:
            sender.add(key, b"0", receipts, 0.0)
        await receipts.have(len(keys))
        await sender.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "MOST_FRAMES", 100)
        real = Producer.send

        async def send(self: Producer, batch: Batch, *args: Any, **more: Any) -> Any:
            sent.append(batch)
            return await real(self, batch, *args, **more)

        patch.setattr(Producer, "send", send)
        asyncio.run(asyncio.wait_for(run(), 60))
    assert len(sent) == 2  # of two partitions
    assert sorted(key for key, _ in broker.log) == sorted(keys)


def test_an_invalid_address_is_retried_like_an_unreachable_broker(
    no_waiting: Callable[[Broker], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shipper has other brokers too."""
    broker, receipts = Broker(), Receipts()
    no_waiting(broker)
    start, tried = broker.start, list[str]()

    async def refuses(kafka: str, **settings: Any) -> Producer:
        tried.append(kafka)
        if len(tried) < 3:
            raise ValueError("no address")
        return await start(kafka, **settings)

    monkeypatch.setattr(producer_connection, "start_producer", refuses)
    asyncio.run(asyncio.wait_for(send([(b"k", 0)], receipts), 60))
    assert broker.log == [(b"k", [0])]


def test_an_unexpected_error_is_raised(no_waiting: Callable[[Broker], None]) -> None:
    broker = Broker()
    no_waiting(broker)

    class Broken(Receipts):
        def delivered(self) -> None:
            raise ZeroDivisionError

    async def run() -> None:
        sender = Sender("b", "t")
        sender.add(b"k", b"1", Broken(), 0.0)
        await until_in_loop(lambda: sender._failed is not None)
        with pytest.raises(ZeroDivisionError):
            sender.add(b"k", b"2", Broken(), 0.0)
        await sender.close()

    asyncio.run(asyncio.wait_for(run(), 60))


@dataclass
class Forgetful(Broker):
    """A broker that loses its log when it is killed; its epoch distinguishes the logs."""

    epoch: int = 1
    producers: list[Mortal] = field(default_factory=list)

    async def start(self, _kafka: str, **_settings: Any) -> Mortal:
        self.producers.append(Mortal(self))
        return self.producers[-1]

    def kill(self) -> None:
        self.epoch += 1
        self.log.clear()
        for each in self.producers:
            each.lose()
        self.producers.clear()


class Mortal(Producer):
    """Of one life of a broker: what it has under way when that ends fails, and it takes no more."""

    def __init__(self, broker: Forgetful) -> None:
        super().__init__(broker)
        self.lost: Callable[[], None] = lambda: None
        self.life_of, self.epoch = broker, broker.epoch

    async def life(self, _kafka: str, lost: Callable[[], None], _security: object) -> Any:
        self.lost = lost
        if self.epoch != self.life_of.epoch:
            raise KafkaTimeoutError
        return SimpleNamespace(epoch=self.epoch)

    def lose(self) -> None:
        self.lost()

    async def send(
        self, batch: Batch, _topic: str, _partition: int, *, compressed: bool
    ) -> asyncio.Future[Any]:
        assert not self.ended
        await asyncio.sleep(0)
        answer = asyncio.get_running_loop().create_future()
        if self.epoch == self.life_of.epoch:
            log = self.life_of.log
            offset = len(log)
            log += [(key, orjson.loads(value)) for key, value in batch.frames]
            done = SimpleNamespace(offset=offset)
            asyncio.get_running_loop().call_later(0.0001, self.answer, answer, done)
        return answer

    def answer(self, future: asyncio.Future[Any], value: object) -> None:
        if self.epoch == self.life_of.epoch and not future.done():
            future.set_result(value)


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=30),
    st.lists(st.integers(0, 40), max_size=4),
)
def test_a_log_that_is_lost_is_sent_again_from_the_oldest(
    keys: list[bytes], kills: list[int]
) -> None:
    """After dropping by position the last log has everything once: nothing newer came first."""
    events = [(key, b"%d" % position) for position, key in enumerate(keys)]

    broker, receipts = Forgetful(), Receipts()

    async def run() -> None:
        known: list[int] = []

        def on_connect(volatile: bool, lost: bool) -> None:
            assert volatile
            known.append(broker.epoch)
            if lost:
                assert sender.waiting_bytes == 0
                receipts.acknowledged.clear()
                add()

        def add() -> None:
            for key, event in events:
                sender.add(key, event, receipts, 0.0)

        sender = Sender("b", "t", on_connect=on_connect)
        add()
        for turns in kills:
            for _ in range(turns):
                await asyncio.sleep(0.0001)
            broker.kill()
            await sender.committed()  # as retention does, also when nothing is left to send
            # Else what the lost log acknowledged would be taken for the new one's.
            await until_in_loop(lambda: known[-1:] == [broker.epoch])
        await receipts.have(len(events))
        await sender.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_connection, "RETRY_S", 0.0)
        patch.setattr(sending, "FRAME_EVENTS", 3)
        patch.setattr(producer_connection, "start_producer", broker.start)
        asyncio.run(asyncio.wait_for(run(), 60))
    wanted: dict[bytes, list[int]] = defaultdict(list)
    for position, key in enumerate(keys):
        wanted[key].append(position)
    assert deduplicated(broker.log) == wanted
