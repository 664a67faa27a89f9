"""The world: every process and service of one run, and the one chance that drives them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Final

import psycopg

from headstart.events.frames import encode_frame
from headstart.keys import event_key
from learners.registry import policy
from processing.config import LearningConfig
from processing.records.batch import Headers
from processing.records.partitioner import partition_for
from processing.state.clock import TICK_MS
from processing.state.rows import PARTITION_KEY, decode_partition, version
from tests.simulation.broker import PARTITIONS, SESSION_S, Broker, Log
from tests.simulation.clients import Disk
from tests.simulation.databases import Postgres, Redis
from tests.simulation.faults import PortFault, Schedule
from tests.simulation.host_clocks import said_ms
from tests.simulation.loop import Loop
from tests.simulation.process import BrokerAway, Call, Process, StoreFailed
from tests.simulation.steering import OPERATORS_KEY, Steering
from tests.simulation.traffic import Event, Executor, Frame, Key, Shipper, Spool, plans
from tests.simulation.worker import Worker
from topics.catalogue import CHANGELOG, EVENTS
from topics.epoch import Epoch

BEGIN_MS: Final = 1_760_000_000_000
REQUEST_S: Final = 120.0
"""After this long a request that did not arrive never will (the producer's request timeout)."""
EXECUTORS: Final = 2
PATIENT_S: Final = 300.0
"""After this long no other worker will give a worker the rows for which it waits."""
IDLE_MS: Final = 5_400_000
"""A fault lets two hours pass."""


class Wrong(AssertionError):
    """The promise was broken, or the world could not come to rest."""


class World:
    """One run of one schedule."""

    ended_waiting = False
    """Whether the run ended because a worker waits for rows that are lost."""

    def __init__(self, schedule: Schedule, *, trace: bool = False) -> None:
        self.schedule = schedule
        self.chance = random.Random(f"{schedule.seed} runs")
        self.loop = Loop(self._unexpected)
        self._nobody = copy_context()
        self.calls: list[Call] = []
        self.steps = 0
        self.trace: list[str] | None = [] if trace else None
        self.wrong: list[str] = []
        self.calm, self.calm_at = False, 0
        """Whether faults are over."""
        self.hours = 0.0
        """How far event time is ahead of the world's own clock."""
        self.skews: dict[str, int] = {}
        """How far the clocks of processes are ahead, ms, by name."""
        self.righted: dict[bytes, tuple[bytes, int] | None] = {}
        """Values of records whose producer's clock is wrong, and what they would be, with their
        Kafka timestamp, were it right; None: nothing, for they are refused."""
        self.broker = Broker(self.chance, kafka=schedule.kafka)
        self.redis, self.postgres = Redis(), Postgres(schedule.failing_over)
        self.epoch = Epoch(1, PARTITIONS)
        self.rules = LearningConfig(
            policy(schedule.learner),
            operators_key=OPERATORS_KEY,
            idle_ms=IDLE_MS if schedule.changing else LearningConfig.idle_ms,
            most_contexts=schedule.most_contexts,
        )
        self.marks = 0
        self.disks: dict[str, Disk] = {}
        self.workers: dict[str, Worker] = {}
        self.wanted = [*(f"thresholds-{n}" for n in range(schedule.workers)), "episodes-0"]
        self.recreating = False
        self.past: list[tuple[int, Broker]] = []
        """(log epoch, broker) of earlier lives of the log."""
        self.upheld = True
        """Whether dead workers are started again."""
        self.spools: list[Spool] = []
        self.appended: dict[str, Event] = {}
        """Every event that came into a spool, by id."""
        self.emitted: set[str] = set()
        self.extra: list[bytes] = []
        """Records, each of one event, that are stored though no spool held them."""
        self.frames: list[tuple[Key, list[Event]]] = []
        self.orderly = True
        """Whether every start went out before its completion, and less than an hour apart."""
        self.refused: list[tuple[str, bytes]] = []
        """(group, value) of each dead letter that there must be."""
        self.ends: Counter[str] = Counter()
        self.steering: set[Steering] = set()
        """Operators who are sending control records."""
        self.transacting = 0
        """Transactions that have begun, and of which a record or a marker is yet to come."""
        self._spooled: list[asyncio.Future[None]] = []
        self.counted: Counter[str] = Counter()
        """Calls of each port until faults were over."""
        self._port_faults = {
            (fault.port, fault.nth): fault.how
            for fault in schedule.faults
            if isinstance(fault, PortFault)
        }

    def begin(self) -> None:
        """Start everything."""
        for name in self.wanted:
            self.start_worker(name)
        made = plans(self.chance, EXECUTORS, self.schedule.events, feedback=self.schedule.changing)
        self.executors = {
            f"executor-{n}": Executor(f"executor-{n}", self, plan) for n, plan in enumerate(made)
        }
        self.shipper = Shipper("shipper", self)

    # -- time and chance ---------------------------------------------------------------------

    def wall_ms(self) -> int:
        """Return the wall clock, Unix ms."""
        return BEGIN_MS + int(self.loop.now * 1000) + int(self.hours * 3_600_000)

    def note(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.steps:5} {self.loop.now:8.2f}s  {text}")

    def fate(self, port: str) -> str:
        """Return how this call of a port goes: "" where it goes well."""
        if self.calm:
            return ""
        self.counted[port] += 1
        how = self._port_faults.get((port, self.counted[port]), "")
        if how:
            self.note(f"fault: {port} number {self.counted[port]}: {how}")
        return how

    def step(self) -> bool:
        """Let one message arrive or one timer fire; return False where nothing can happen."""
        self.loop.run_ready()
        self.steps += 1
        timer = self.loop.next_timer()
        if self.calls and (timer is None or self.chance.random() < 0.93):
            place = int(self.chance.random() * len(self.calls))
            self.calls[place], call = self.calls[-1], self.calls[place]
            self.calls.pop()
            self._arrive(call)
        elif timer is not None:
            self.loop.fire()
        else:
            return False
        self.loop.run_ready()
        return True

    def _arrive(self, call: Call) -> None:
        if call.replying:
            self._answer(call)
            return
        if self.loop.now - call.sent > REQUEST_S:
            call.error = call.failure(f"{call.port} timed out")
            self._answer(call)
            return
        how = "" if call.process.dead else self.fate(call.port)
        if how == "crash before":
            call.process.kill(f"killed before {call.port}")
            return
        if how == "refused":
            call.error = call.failure(f"{call.port} was refused")
        else:
            try:
                call.result = call.effect()
            except Exception as error:
                call.error = error
            if self.trace is not None:
                self.note(f"{call.process.name}: {call.port} -> {call.error or call.result!r:.80}")
        if how == "crash after":
            call.process.kill(f"killed after {call.port}")
        elif how == "lost reply":
            call.error = call.failure(f"{call.port}: the answer was lost")
        if self.chance.random() < 0.7:
            self._answer(call)
        else:
            call.replying = True
            self.calls.append(call)

    def _answer(self, call: Call) -> None:
        if call.process.dead or call.answer.done():
            return
        if call.error is None:
            call.answer.set_result(call.result)
        else:
            call.answer.set_exception(call.error)
            call.answer.exception()  # retrieved: the waiting process may die before it does

    def forget_calls(self, process: Process) -> None:
        """Lose some of what a dead process had sent; the rest arrives late."""
        self.calls = [
            call
            for call in self.calls
            if call.process is not process or (not call.replying and self.chance.random() < 0.5)
        ]

    def _unexpected(self, error: BaseException) -> None:
        self.wrong.append(f"unexpected: {error!r}")

    def close(self) -> None:
        """End every process without a trace."""
        self.trace = None
        for process in [*self.workers.values(), *self.executors.values(), self.shipper]:
            process.kill("the run is over")

    def later(self, seconds: float, work: Callable[..., Any], *args: Any) -> None:
        """Do something in the name of no process."""
        self.loop.call_later(seconds, work, *args, context=self._nobody)

    # -- processes ---------------------------------------------------------------------------

    def disk(self, name: str) -> Disk:
        return self.disks.setdefault(name, Disk())

    def start_worker(self, name: str) -> None:
        current = self.workers.get(name)
        if self.upheld and (current is None or current.dead):
            self.note(f"{name} starts")
            self.workers[name] = Worker(name, self)

    def died(self, process: Process) -> None:
        """See that a dead process is replaced, and that its group notices."""
        if isinstance(process, Worker):
            self.broker.readers.remove(process.app.consumer.ready)
            group = process.group
            self.later(SESSION_S, group.leave, process)
            after = self.chance.choice([0.2, 0.2, 3.0, 20.0])
            self.later(after, self.start_worker, process.name)
        elif isinstance(process, Executor):
            self.orderly = False
            self.later(1.0, self._restart_executor, process)
        elif isinstance(process, Shipper):
            self.later(1.0, self._restart_shipper)
        elif isinstance(process, Steering):
            self.later(1.0, process.again)

    def _restart_executor(self, process: Executor) -> None:
        self.executors[process.name] = Executor(process.name, self, process.plan)

    def _restart_shipper(self) -> None:
        if not self.recreating and self.shipper.dead:
            self.shipper = Shipper("shipper", self)

    def ended(self, process: Process, where: str, error: BaseException) -> None:
        """Note why a process ended itself; only what a fault explains is right."""
        self.ends[f"{where}: {type(error).__name__}"] += 1
        if not isinstance(error, BrokerAway | StoreFailed | psycopg.OperationalError):
            self.wrong.append(f"{process.name} ended itself in {where}: {error!r}")

    # -- what executors do -------------------------------------------------------------------

    def new_spool(self) -> Spool:
        spool = Spool(f"spool-{len(self.spools)}")
        self.spools.append(spool)
        return spool

    async def spool_or_wait(self) -> None:
        """Return when something came into a spool."""
        waiter = self.loop.create_future()
        self._spooled.append(waiter)
        await waiter

    def spooled(self) -> None:
        waiting, self._spooled = self._spooled, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def produce(self, key: Key, frame: Frame) -> None:
        """Append a frame to the log, as a shipper does."""
        events = [event for _spool, some in frame for event in some]
        self.frames.append((key, events))
        self.append(key, events)

    def append(self, key: Key, events: list[Event]) -> None:
        value = encode_frame(event.value for event in events)
        self.append_record(partition_for(*key, PARTITIONS), event_key(*key), value)

    def append_record(
        self,
        partition: int,
        key: bytes,
        value: bytes,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> None:
        at = self.wall_ms() if timestamp is None else timestamp
        self.broker.append(EVENTS.name, partition, [(key, value)], at, self.loop.now, headers)

    # -- at rest -----------------------------------------------------------------------------

    def all_emitted(self) -> bool:
        return not any(executor.plan for executor in self.executors.values())

    def owner_of(self, partition: int) -> Worker:
        """Return the worker that owns a partition's thresholds."""
        return next(
            each for each in self._open("thresholds") if partition in each.app.consumer.position
        )

    def _open(self, kind: str) -> list[Worker]:
        return [w for w in self.workers.values() if w.kind == kind and w.running and w.open]

    def applied(self, partition: int) -> int:
        """Return the next offset that the thresholds of a partition wait for, as delivered."""
        row = None
        for worker in self._open("thresholds"):
            if partition in worker.app.consumer.position:
                row = worker.store.get_row(partition, PARTITION_KEY)
        if row is None or version(row)[0] != self.epoch.number:
            return 0
        return version(row)[1] + 1

    def appending(self) -> bool:
        """Return whether a frame is on its way to the log."""
        return any(call.port == "events.append" for call in self.calls)

    def adopted(self) -> bool:
        """Return whether the rows of the last log epoch are in this one's changelog."""
        if self.recreating or not self.past:
            return not self.recreating
        logs = zip(
            self.past[-1][1].logs[CHANGELOG.name], self.broker.logs[CHANGELOG.name], strict=True
        )
        return all(
            any(record.key == PARTITION_KEY for record in now.records)
            for before, now in logs
            if before.records
        )

    def drained(self) -> bool:
        """Return whether all that is in the log is in the tables."""
        for partition, log in enumerate(self.broker.logs[EVENTS.name]):
            stored = self.postgres.offsets.get((self.epoch.number, partition), 0)
            if log.transactions and not self._passed(partition, log, stored):
                return False
            counting = (record for record in reversed(log.records) if record.counts)
            if (last := next(counting, None)) is None:
                continue
            end = last.offset + 1
            if stored < end or self.applied(partition) < end:
                return False
        return True

    def _passed(self, partition: int, log: Log, stored: int) -> bool:
        """Return whether no transaction is open, and its markers are no lag for anybody."""
        reached = [
            each.app.consumer.reached()[partition]
            for each in self._open("thresholds")
            if partition in each.app.consumer.position
        ]
        ended = all(each.committed is not None for each in log.transactions)
        return ended and stored >= log.end and all(at >= log.end for at in reached)

    def owners_are_noted(self) -> bool:
        """Return whether Redis names the last owner of each partition, and how far it is.

        Always in worlds in which nothing depends on it.
        """
        if not self.schedule.recreating:
            return True
        for worker in self._open("thresholds"):
            for partition in worker.app.consumer.position:
                row = worker.store.get_row(partition, PARTITION_KEY)
                noted = self.redis.owners.get(partition)
                if row is not None and (
                    noted is None or (noted.worker, noted.version) != (worker.name, version(row))
                ):
                    return False
        return not self.redis.down

    def waits_for_rows(self) -> bool:
        """Return whether workers wait for rows for long, and nothing else keeps others from work.

        That is how a run ends whose log was recreated together with a data directory.
        """
        workers = [self.workers[name] for name in self.wanted if name.startswith("thresholds")]
        waiting = [each for each in workers if each.refused]
        if self.recreating or not waiting or not all(each.running for each in workers):
            return False
        since = max(each.refused_since for each in waiting)
        return self.loop.now - since > PATIENT_S and all(
            each.open or each.refused for each in workers
        )

    def at_rest(self) -> bool:
        return not self.restless()

    def restless(self) -> str:
        """Return what is not at rest yet, "" where everything is."""
        if not self.all_emitted():
            return "executors emit"
        if self.recreating:
            return "the log is being recreated"
        if self.steering:
            return "operators send control records"
        if self.transacting:
            return "a transaction is under way"
        if any(any(spool.waiting.values()) for spool in self.spools):
            return "spools hold events"
        for name in self.wanted:
            worker = self.workers[name]
            if not (
                worker.running
                and worker.open
                and worker.group.holds(worker, worker.app.consumer_generation_id)
            ):
                return f"{name} is not open; ended: {dict(self.ends)}"
        if any(call.process.dead for call in self.calls):
            return "calls of dead processes are under way"
        if not self.drained():
            return "the log is not drained"
        return "a clock has to catch up" if any(map(self._lags, range(PARTITIONS))) else ""

    def _lags(self, partition: int) -> bool:
        """Return whether a partition still waits for a clock record, which may expire something."""
        owner = self.owner_of(partition)
        own = owner.store.get_row(partition, PARTITION_KEY)
        clock = 0 if own is None else decode_partition(own).clock
        return said_ms(self, owner.name) - clock >= TICK_MS
