"""Events in memory: no thread is woken without need, and no sleeping one is forgotten.

The sender is a stand-in: how the thread and `put` meet is what is looked at here.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from headstart import Emitter
from headstart.emitting import memory_buffer
from headstart.emitting.memory_buffer import MemoryBuffer
from headstart.shipping.sender import Receipt
from headstart.spool.layout import SpoolTarget
from tests.patience import PATIENCE_S, until

TARGET = SpoolTarget("127.0.0.1:1", "t", 0.0)
EVENT = b'{"n":1}'
"""JSON also with an origin: where that looks like a card number, it is parsed."""


@dataclass
class Taken:
    """A sender that sends everything at once, or on request."""

    hold: bool = False
    events: list[bytes] = field(default_factory=list)
    held: list[Receipt] = field(default_factory=list)

    def __call__(self, *_: Any, **__: Any) -> Taken:
        return self

    def add(self, _key: bytes, event: bytes, receipt: Receipt, _linger_s: float) -> None:
        self.events.append(event)
        if self.hold:
            self.held.append(receipt)
        else:
            receipt.delivered()

    async def close(self) -> None:
        return None


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    sender = Taken()
    monkeypatch.setattr(memory_buffer, "Sender", sender)
    return sender


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns as often as the interpreter lets them."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("looks", [0, 1, 3])
def test_an_event_always_wakes_a_thread_that_sleeps(
    taken: Taken, quick_switches: None, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    monkeypatch.setattr(memory_buffer, "QUIET_POLLS", looks)
    monkeypatch.setattr(memory_buffer, "LEAST_PAUSE_S", 0.00005)
    outbox, draw = MemoryBuffer(TARGET, 10_000), random.Random(looks)
    for number in range(4_000):
        outbox.put(b"k", EVENT, 0)
        if draw.random() < 0.7:  # the thread is about to sleep, asleep, or at work
            until(lambda number=number: outbox.progress().settled == number + 1, pause_s=0.0001)
            time.sleep(draw.choice([0.0, 0.00003, 0.0001]))
    until(lambda: outbox.progress().settled == 4_000)
    outbox.close(PATIENCE_S)
    assert [event.count(b'"origin"') for event in taken.events] == [1] * 4_000


def test_events_during_polling_wake_no_thread(
    taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_buffer, "LEAST_PAUSE_S", 0.2)  # ten quiet looks take two seconds
    wakes = []
    notify = MemoryBuffer._notify
    monkeypatch.setattr(MemoryBuffer, "_notify", lambda self: (wakes.append(1), notify(self)))
    outbox = MemoryBuffer(TARGET, 10_000)
    for _number in range(1_000):
        outbox.put(b"k", EVENT, 0)
    until(lambda: outbox.progress().settled == 1_000)
    assert len(wakes) <= 1
    outbox.close(PATIENCE_S)


def test_half_may_be_in_flight_and_the_rest_follows_acknowledgements(taken: Taken) -> None:
    taken.hold = True
    outbox = MemoryBuffer(TARGET, 10)
    for _ in range(10):
        outbox.put(b"k", EVENT, 0)
    until(lambda: len(taken.held) == 5)
    time.sleep(0.05)
    assert len(taken.held) == 5
    loop = outbox._loop
    assert loop is not None
    loop.call_soon_threadsafe(taken.held[0].delivered)
    until(lambda: len(taken.held) == 6)
    outbox.close(PATIENCE_S)


def test_the_oldest_that_is_not_on_its_way_is_dropped(taken: Taken) -> None:
    taken.hold = True
    outbox = MemoryBuffer(TARGET, 10, "drop_oldest")
    for number in range(5):
        outbox.put(b"k", b'{"n":%d}' % number, 0)
    until(lambda: len(taken.held) == 5)
    for number in range(5, 100):
        outbox.put(b"k", b'{"n":%d}' % number, 0)
    assert (outbox.emitted, outbox.dropped) == (100, 90)
    assert outbox.progress().lost == 90
    outbox.close(PATIENCE_S)


def test_a_process_that_can_have_no_thread_takes_nothing(
    taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    fields = {"event_type": "task_complete", "workflow_type": "w", "workflow_id": "w"}
    emitter = Emitter("127.0.0.1:1", durable=False)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="new thread"):
            emitter.emit(fields)
    assert emitter.stats()["emitted"] == 0
    emitter.emit(fields)
    emitter.close(PATIENCE_S)
    assert len(taken.events) == 1
