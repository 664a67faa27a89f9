"""Executors as models: what they emit, their spools, and the shipper that sends them.

An event whose `emit` returned is on disk; nothing newer of a spool and key goes out before the
oldest that is unacknowledged. Everything else may happen: crashes, retries, other framings.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from headstart.keys import event_key
from processing.records.partitioner import partition_for
from tests.simulation.broker import PARTITIONS
from tests.simulation.databases import UNSTORABLE
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

KEYS: Final = (("acme", "refund"), ("acme", "joined"), ("globex", "refund"), ("globex", "report"))
JOINED: Final = "joined"
"""The workflow type whose outcomes come of a start and its completion."""
RETRY_S: Final = 1.0

Key = tuple[str, str]


@dataclass(frozen=True)
class Event:
    """One event as its executor knows it."""

    id: str
    key: Key
    value: bytes
    counts: tuple[str, ...] = ()
    """The context paths in which it makes one outcome."""
    feedback: tuple[str, ...] = ()
    """Those in which it is a user's verdict."""


@dataclass
class Spool:
    """One process's spool: its events of each key in order, gone when acknowledged."""

    id: str
    position: int = 0
    waiting: dict[Key, list[Event]] = field(default_factory=dict)
    sent: dict[Key, list[Event]] = field(default_factory=dict)


Frame = list[tuple[Spool, list[Event]]]


class Executor(Process):
    """Emits its events one by one, each into the spool of this process."""

    def __init__(self, name: str, world: World, plan: list[Event | float]) -> None:
        super().__init__(name, world)
        self.plan = plan
        self._spool = world.new_spool()
        self.start(self._run())

    async def _run(self) -> None:
        while self.plan:
            step = self.plan[0]
            if isinstance(step, float):
                self.plan.pop(0)
                await asyncio.sleep(step)
                continue
            self.plan.pop(0)
            try:
                self.do("spool.append", lambda event=step: self._append(event), OSError)
            except OSError:  # `emit` raised; the next event opens a new file, as after a restart
                self.world.orderly = False
                self._spool = self.world.new_spool()
            else:
                self.world.emitted.add(step.id)

    def _append(self, event: Event) -> None:
        spool = self._spool
        now_ms = self.world.wall_ms() + self.world.skews.get(self.name, 0)
        stamped = _stamped(event, now_ms, (spool.id, spool.position))
        spool.waiting.setdefault(event.key, []).append(stamped)
        spool.position += 1
        self.world.appended[event.id] = event
        self.world.spooled()


class Shipper(Process):
    """Sends what the spools hold; a successor begins with what is not acknowledged."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, world)
        for key in KEYS:
            self.start(self._ship(key))

    async def _ship(self, key: Key) -> None:
        while True:
            frame = self._frame(key)
            if not frame:
                await self.world.spool_or_wait()
                continue
            try:
                await self.call("events.append", lambda f=frame: self.world.produce(key, f))
                self.do("spool.acknowledge", lambda f=frame: self._acknowledge(key, f), OSError)
            except (ConnectionError, OSError):
                await asyncio.sleep(RETRY_S)

    def _frame(self, key: Key) -> Frame:
        """Return the oldest events of some spools, as they are now: a late frame is an old one."""
        return [
            (spool, waiting[: self.world.chance.randint(1, 4)])
            for spool in self.world.spools
            if (waiting := spool.waiting.get(key))
        ]

    def _acknowledge(self, key: Key, frame: Frame) -> None:
        for spool, events in frame:
            del spool.waiting[key][: len(events)]
            spool.sent.setdefault(key, []).extend(events)


def _stamped(event: Event, now_ms: int, origin: tuple[str, int]) -> Event:
    """Return the event with its time and origin, as `emit` writes it."""
    fields = orjson.loads(event.value)
    fields["timestamp"] += now_ms
    fields["origin"] = origin
    return Event(event.id, event.key, orjson.dumps(fields), event.counts, event.feedback)


def plans(
    chance: random.Random, executors: int, events: int, *, feedback: bool = False
) -> list[list[Event | float]]:
    """Return what each executor does: events, and pauses in seconds between them."""
    made: list[list[Event | float]] = [[] for _ in range(executors)]
    for number in range(events):
        plan = made[number % executors]
        plan += _task(chance, number, feedback=feedback)
        if chance.random() < 0.4:
            plan.append(chance.choice([0.1, 2.0, 6.0]))
    return made


def _task(chance: random.Random, number: int, *, feedback: bool = False) -> Iterator[Event]:
    """Yield the events of one task."""
    tenant, workflow_type = chance.choice(KEYS)
    fields: dict[str, Any] = {
        "tenant": tenant,
        "workflow_type": workflow_type,
        "workflow_id": f"w{number}",
        "task_id": f"t{number % 7}" if chance.random() < 0.1 else f"t{number}",
        "timestamp": chance.randint(-500, 500),
        "user_id": chance.choice(["u1", "u2"]),
    }
    context = {"context": {"domain": chance.choice(["retail", "air"])}}
    top = f"workflow_type={workflow_type}"
    domain = f"{top}/domain={context['context']['domain']}"
    paths = (top, domain, f"{domain}/user_id={fields['user_id']}")
    confidence = chance.choice([0.5, 0.93, 0.99, chance.random()])
    result = {"gain_ms": chance.uniform(1, 900), "cost_ms": chance.uniform(1, 900)}
    if workflow_type != JOINED:
        prediction = {"was_correct": chance.random() < 0.8, "speculated": chance.random() < 0.5}
        if chance.random() < 0.1:
            yield _event(chance, "hil_decision", fields, context)
        data = {**context, "prediction": prediction, "result": result}
        yield _event(chance, "task_complete", fields, data, paths, confidence=confidence)
        if feedback and chance.random() < 0.2:
            verdict = {**context, "accepted": chance.random() < 0.5}
            verdict_event = _event(chance, "user_feedback", fields, verdict, confidence=confidence)
            yield replace(verdict_event, feedback=paths)
        return
    guess = {"tool_id": "search", "speculated": True}
    start = {**context, "prediction": guess}
    yield _event(chance, "speculation_start", fields, start, confidence=confidence)
    if chance.random() < 0.85:
        tool = chance.choice(["search", "cancel"])
        yield _event(chance, "task_complete", fields, {"result": result}, paths, tool_id=tool)


def _event(
    chance: random.Random,
    kind: str,
    fields: dict[str, Any],
    data: dict[str, Any],
    counts: Sequence[str] = (),
    **more: Any,
) -> Event:
    name = str(uuid.UUID(int=chance.getrandbits(128), version=4))
    value = {"id": name, "event_type": kind, **fields, "data": data, **more}
    key = (fields["tenant"], fields["workflow_type"])
    return Event(name, key, orjson.dumps(value), tuple(counts))


def foreign_event(chance: random.Random) -> Event:
    """Return an event of a producer without a spool; its time is an offset from now."""
    return next(_task(chance, 20_000 + chance.randrange(100_000)))


def stamped(event: Event, now_ms: int) -> Event:
    """Return the event with its time, and without an origin."""
    fields = orjson.loads(event.value)
    fields["timestamp"] += now_ms
    return replace(event, value=orjson.dumps(fields))


def poison(
    chance: random.Random, kind: str, now_ms: int
) -> tuple[int, bytes, bytes, tuple[str, ...]]:
    """Return (partition, key, value, groups that must refuse it) of one bad record."""
    event = next(_task(chance, 9_000 + chance.randrange(1000)))
    key = event_key(*event.key)
    place = partition_for(*event.key, PARTITIONS)
    if kind == "garbage":
        value = b"no JSON %d" % chance.getrandbits(32)
        return chance.randrange(PARTITIONS), key, value, ("thresholds", "episodes")
    fields = orjson.loads(event.value)
    fields["timestamp"] += now_ms
    if kind == "invalid":
        value = orjson.dumps({**fields, "confidence": 7})
        return place, key, value, ("thresholds", "episodes")
    if kind == "foreign":
        return 1 - place, key, orjson.dumps(fields), ("thresholds",)
    if kind == "kcat":
        return place, key, orjson.dumps({**fields, "event_type": "hil_decision"}), ()
    value = orjson.dumps({**fields, "event_type": "user_feedback", "tool_id": UNSTORABLE})
    return place, key, value, ("episodes",)
