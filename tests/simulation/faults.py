"""What goes wrong, as data: a schedule is printed for a failing seed, and replays.

`at` counts the steps of the world; a step is a message that arrives or a timer that fires.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

LAST_FAULT_AT: Final = 220
"""Step by which the last fault has happened; about when the last event is emitted."""

PORTS: Final = (
    "changelog.append", "changelog.append", "changelog.append", "store.write", "store.write",
    "changelog.read", "changelog.recover", "dead_letters.append", "thresholds.append",
    "redis.publish", "redis.publish", "redis.run", "redis.published", "redis.begin",
    "redis.remember",
    "group.commit", "group.committed", "events.fetch", "events.earliest", "consumer.seek",
    "changelog.end", "postgres.open", "postgres.offsets", "postgres.copy", "postgres.commit",
    "postgres.commit", "events.append", "events.append", "spool.acknowledge", "spool.append",
    "done",
)  # fmt: skip
"""Every port of every process; the ones that matter most stand more than once."""
PATTERNS: Final = ("*", "domain=air", "workflow_type=refund", "workflow_type=refund/user_id=*")
"""What operators choose learners for, the most special last."""
CHANGING: Final = (2, 4)
"""Remainders by 5 of the seeds whose worlds are changing."""
MERGING: Final = 2
"""That of those in which tenants' defaults are merged as well."""
REBUILDING: Final = 3
"""Remainder by 11 of the seeds in whose worlds tables are rebuilt."""
WEIGHING: Final = 4
"""Remainder by 13 of the seeds in whose worlds users are weighed down."""
TAMPERING: Final = 3
"""Remainder by 7 of the seeds in whose worlds something else writes to Redis."""
TAMPER_HOW: Final = (
    "newer", "newer", "a bit newer", "a bit newer", "differing", "unreadable", "deleted", "unknown",
    "all deleted",
)  # fmt: skip
TAMPER_PORTS: Final = (
    "redis.compare", "redis.repair", "redis.repair", "redis.fields", "redis.publish", "epochs.read",
    "changelog.end",
)  # fmt: skip
CLOCKED: Final = (1, 6)
"""Remainders by 7 of the seeds in whose worlds some clocks are wrong."""
REBUILD_PORTS: Final = (
    "events.read", "events.read", "changelog.append", "store.write", "redis.publish",
    "thresholds.append", "control.append",
)  # fmt: skip
"""Those that a rebuild goes through."""
HOW: Final = ("crash before", "crash after", "lost reply", "refused")


@dataclass(frozen=True)
class PortFault:
    """The nth call of a port fails: the caller dies before or after the effect, or sees an error
    though the effect happened ("lost reply"), or because it did not ("refused")."""

    port: str
    nth: int
    how: str


@dataclass(frozen=True)
class Kill:
    """kill -9 of a worker ("all": of every one), perhaps with its data directory wiped."""

    at: int
    worker: str
    wipe: bool = False


@dataclass(frozen=True)
class Stop:
    """A worker stops as asked to (SIGTERM), and is started again."""

    at: int
    worker: str


@dataclass(frozen=True)
class Stall:
    """A worker is suspended (SIGSTOP) for a time, perhaps beyond its session."""

    at: int
    worker: str
    seconds: float


@dataclass(frozen=True)
class Evict:
    """The group goes on without a worker, which notices some heartbeats later: a zombie."""

    at: int
    worker: str
    heartbeats: int


@dataclass(frozen=True)
class Rebalance:
    """A group rebalances its partitions, in mid-batch."""

    at: int
    group: str


@dataclass(frozen=True)
class KillExecutor:
    """kill -9 of an executor in mid-burst, or of the shipper."""

    at: int
    name: str


@dataclass(frozen=True)
class Duplicate:
    """A frame, or events of a spool in another frame, reach the log once more."""

    at: int
    reframed: bool


@dataclass(frozen=True)
class Poison:
    """A record that the contract, a partition's owner or Postgres refuses."""

    at: int
    kind: str


@dataclass(frozen=True)
class Gap:
    """A worker's consumer skips records."""

    at: int
    worker: str


@dataclass(frozen=True)
class Hole:
    """The embedded broker shows later records before earlier ones, a few times."""

    at: int
    tries: int


@dataclass(frozen=True)
class Redis:
    """Redis is "emptied", "down" for some seconds, or restarts from its last "snapshot"."""

    at: int
    how: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Postgres:
    """Postgres goes away for some seconds; its connections break (0: only they do)."""

    at: int
    seconds: float


@dataclass(frozen=True)
class Failover:
    """The primary of Postgres ends; some seconds later a replica answers that lacks the last
    transactions. See `tests.simulation.failovers`."""

    at: int
    seconds: float
    lacks: int


@dataclass(frozen=True)
class Compact:
    """The broker compacts the changelog, as far as its compaction lag lets it."""

    at: int
    partition: int


@dataclass(frozen=True)
class Retain:
    """Retention takes from the log what every group has processed."""

    at: int


@dataclass(frozen=True)
class Time:
    """Event time moves on: open starts expire after an hour, positions of spools after days."""

    at: int
    hours: float


@dataclass(frozen=True)
class Skew:
    """The clock of a process goes wrong by so many minutes: an executor's, or a worker's."""

    at: int
    name: str
    minutes: float


@dataclass(frozen=True)
class Stranger:
    """A producer writes events of a user of its own, stamped by a clock that is "fast", "slow", of
    the "future" (as its Kafka timestamps are), or in "seconds"."""

    at: int
    clock: str
    events: int


@dataclass(frozen=True)
class Steer:
    """An operator chooses another learner for a pattern; `signed`: by the key, or else forged."""

    at: int
    pattern: str
    learner: str | None
    signed: bool


@dataclass(frozen=True)
class Forget:
    """An operator has the contexts of a pattern forgotten."""

    at: int
    pattern: str
    tenant: str | None


@dataclass(frozen=True)
class Plant:
    """An operator gives a workflow type a state, as an import does."""

    at: int
    tenant: str
    workflow_type: str


@dataclass(frozen=True)
class Weigh:
    """A user of `acme` is weighed down, or no longer: one in `every` counts, for so many hours."""

    at: int
    workflow_type: str
    user: str
    every: int
    hours: float


@dataclass(frozen=True)
class Rebuild:
    """A partition's table is rebuilt from the log, the rows staged some records ago."""

    at: int
    partition: int
    ago: int


@dataclass(frozen=True)
class Tamper:
    """Something else changes a value in Redis, or takes it away: see `tampering.tamper`."""

    at: int
    how: str


@dataclass(frozen=True)
class Recreate:
    """The log is drained, then recreated: a new log epoch, offsets begin again.

    `lost`: workers whose data directories are gone with it.
    """

    at: int
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class Transact:
    """A foreign producer writes records in a transaction that is open for some seconds, and then
    commits or aborts it. See `tests.simulation.transactions`."""

    at: int
    records: int
    seconds: float
    commits: bool


Fault = (
    PortFault | Kill | Stop | Stall | Evict | Rebalance | KillExecutor | Duplicate | Poison | Gap
    | Hole | Redis | Postgres | Compact | Retain | Time | Skew | Stranger | Steer | Forget | Plant
    | Weigh | Rebuild | Recreate | Transact | Tamper | Failover
)  # fmt: skip


@dataclass(frozen=True)
class Schedule:
    """One run: how the world is built, and what goes wrong in it."""

    seed: int
    kafka: bool
    """Apache Kafka (idempotent, markers take offsets) or the embedded broker (holes)."""
    workers: int
    events: int
    learner: str
    faults: tuple[Fault, ...]
    changing: bool = False
    """Whether operators choose learners, users judge, and contexts go that are idle for long."""
    most_contexts: int = 1_000
    """Of a tenant in a partition; sometimes fewer than there are."""
    merging: bool = False
    """Whether tenants' defaults are merged."""
    tampering: bool = False
    """Whether something else writes to Redis, and workers compare it with the table."""
    failing_over: bool = False
    """Whether Postgres has a replica, and sinks compare their offsets while they are idle."""
    recreating: bool = False
    """Whether several workers meet a recreated log."""

    def __str__(self) -> str:
        broker = "Apache Kafka" if self.kafka else "embedded broker"
        head = (
            f"seed {self.seed}: {broker}, {self.workers} workers, {self.events} events, "
            f"learner {self.learner}"
        )
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])


def schedule(seed: int, learners: tuple[str, ...]) -> Schedule:
    """Return the schedule of a seed."""
    chance = random.Random(seed)
    kafka = chance.random() < 0.7
    workers = chance.choice([1, 2, 2, 2])
    # Few kinds at a time, other ones each time: combinations meet more often ("swarm testing").
    kinds = [kind for kind in _WEIGHTS if chance.random() < 0.35] or list(_WEIGHTS)
    ports = chance.sample(PORTS, 4)
    faults = [_fault(chance, kafka, workers, kinds, ports) for _ in range(chance.randint(2, 9))]
    while chance.random() < 0.3:
        faults.append(_poison(chance))
    if workers == 1 and chance.random() < 0.5:
        faults.append(Recreate(_at(chance)))
    events, learner = chance.randint(6, 14), chance.choice(learners)
    drawn = Schedule(seed, kafka, workers, events, learner, tuple(faults))
    drawn = _changing(drawn) if seed % 5 in CHANGING else drawn
    drawn = _weighing(drawn) if seed % 13 == WEIGHING else drawn
    drawn = _clocked(drawn) if seed % 7 in CLOCKED else drawn
    drawn = _rebuilding(drawn) if seed % 11 == REBUILDING else drawn
    return tampered(drawn) if seed % 7 == TAMPERING else drawn


def _clocked(drawn: Schedule) -> Schedule:
    """Add wrong clocks, and time in which they could do harm."""
    chance = random.Random(f"{drawn.seed} clocks")
    clocks = ["fast", "slow", "future", "future", "seconds"]
    more: list[Fault] = [
        Stranger(_at(chance), chance.choice(clocks), chance.randint(1, 5))
        for _ in range(chance.randint(1, 4))
    ]
    if chance.random() < 0.5:
        name = f"executor-{chance.randrange(2)}"
        more.append(Skew(_at(chance), name, chance.choice([59.8, -180.0, -60_000.0])))
    if chance.random() < 0.4:
        name = f"thresholds-{chance.randrange(drawn.workers)}"
        more.append(Skew(_at(chance), name, chance.choice([4.0, -7.0, 90.0, 50_000.0])))
    more += [
        Time(_at(chance), chance.choice([0.1, 0.2, 0.5, 0.8, 2.0, 30.0]))
        for _ in range(chance.randint(0, 3))
    ]
    return replace(drawn, faults=drawn.faults + tuple(more))


def _changing(drawn: Schedule) -> Schedule:
    """Add what changes what is learned, by a chance of its own: other seeds stay as they are."""
    chance = random.Random(f"{drawn.seed} changes")
    more: list[Fault] = [_steer(chance, _at(chance)) for _ in range(chance.randint(0, 3))]
    planting = not more  # what another learner was chosen for takes no state of this one
    if chance.random() < 0.3:
        how = chance.choice(HOW)
        more.append(PortFault("control.append", chance.randint(1, 4), how))
    if chance.random() < 0.4:
        more.append(Time(_at(chance), 2.0))
    most = chance.choice([1_000, 1_000, 6])
    merging = drawn.seed % 5 == MERGING
    if chance.random() < 0.4:
        tenant = chance.choice(["acme", None])
        more += [Forget(_at(chance), chance.choice(PATTERNS), tenant) for _ in range(2)]
    if planting:
        kind = chance.choice(["refund", "joined"])
        more += [Plant(_at(chance), "acme", kind) for _ in range(2)]
    return replace(
        drawn, faults=drawn.faults + tuple(more), changing=True, most_contexts=most, merging=merging
    )


def _weighing(drawn: Schedule) -> Schedule:
    """Add control records about two users, some of whose time ends while they come."""
    chance = random.Random(f"{drawn.seed} weighs")
    more: list[Fault] = [
        Weigh(int(_at(chance) ** 0.8), chance.choice(["refund", "joined"]),
              chance.choice(["u1", "u1", "u2"]), chance.choice([1, 2, 2, 3, 9]),
              chance.choice([0.5, 1.5, 24.0]))
        for _ in range(chance.randint(2, 6))
    ]  # fmt: skip
    more += [Time(_at(chance), 2.0) for _ in range(chance.randint(0, 2))]
    return replace(drawn, faults=drawn.faults + tuple(more))


def _rebuilding(drawn: Schedule) -> Schedule:
    """Add rebuilds. The log keeps what they need: retention takes days, they take seconds."""
    chance = random.Random(f"{drawn.seed} rebuilds")
    kept = [fault for fault in drawn.faults if not isinstance(fault, Retain | Recreate)]
    more: list[Fault] = [
        Rebuild(_at(chance), chance.randrange(2), chance.choice([0, 0, 3, 10]))
        for _ in range(chance.randint(1, 3))
    ]
    more += [
        PortFault(chance.choice(REBUILD_PORTS), chance.randint(1, 12), chance.choice(HOW))
        for _ in range(chance.randint(0, 3))
    ]
    return replace(drawn, faults=(*kept, *more))


def tampered(drawn: Schedule) -> Schedule:
    """Add what something else does to Redis, and faults of what finds and repairs it."""
    chance = random.Random(f"{drawn.seed} tampers")
    more: list[Fault] = [
        Tamper(int((0.2 + 0.9 * chance.random()) * LAST_FAULT_AT), chance.choice(TAMPER_HOW))
        for _ in range(chance.randint(1, 6))
    ]
    more += [
        PortFault(chance.choice(TAMPER_PORTS), chance.randint(1, 9), chance.choice(HOW))
        for _ in range(chance.randint(0, 2))
    ]
    return replace(drawn, faults=drawn.faults + tuple(more), tampering=True)


def _at(chance: random.Random) -> int:
    return int(chance.random() ** 1.5 * LAST_FAULT_AT)


def _poison(chance: random.Random) -> Poison:
    kind = chance.choice(["garbage", "invalid", "foreign", "unstorable", "kcat"])
    return Poison(_at(chance), kind)


_WEIGHTS: Final[dict[type[Fault], int]] = {
    PortFault: 8, Kill: 4, Stop: 1, Stall: 3, Evict: 6, Rebalance: 3, KillExecutor: 2,
    Duplicate: 4, Poison: 2, Gap: 3, Redis: 4, Postgres: 2, Compact: 3, Retain: 1, Time: 1,
}  # fmt: skip


def _fault(
    chance: random.Random,
    kafka: bool,
    workers: int,
    kinds: Sequence[type[Fault]],
    ports: Sequence[str],
) -> Fault:
    at = _at(chance)
    name = f"thresholds-{chance.randrange(workers)}"
    anyone = name if chance.random() < 0.75 else "episodes-0"
    kind = chance.choices(kinds, [_WEIGHTS[kind] for kind in kinds])[0]
    if kind is PortFault:
        return PortFault(chance.choice(ports), chance.randint(1, 12), chance.choice(HOW))
    if kind is Kill:
        return Kill(at, "all" if chance.random() < 0.25 else anyone, chance.random() < 0.5)
    if kind is Stop:
        return Stop(at, anyone)
    if kind is Stall:
        return Stall(at, anyone, chance.choice([1.0, 9.0, 30.0]))
    if kind is Evict:
        return Evict(at, name, chance.randint(1, 5))
    if kind is Rebalance:
        return Rebalance(at, chance.choice(["thresholds", "thresholds", "episodes"]))
    if kind is KillExecutor:
        return KillExecutor(at, chance.choice(["executor-0", "executor-1", "shipper", "shipper"]))
    if kind is Duplicate:
        return Duplicate(at, chance.random() < 0.6)
    if kind is Poison:
        return _poison(chance)
    if kind is Gap:
        return Gap(at, anyone) if kafka or chance.random() < 0.5 else Hole(at, chance.randint(1, 5))
    return _of_services(chance, kind, at)


def _steer(chance: random.Random, at: int) -> Steer:
    learner = chance.choice(["td", "ema:alpha=0.3", "hops", None])
    return Steer(at, chance.choice(PATTERNS), learner, chance.random() < 0.8)


def _of_services(chance: random.Random, kind: type[Fault], at: int) -> Fault:
    if kind is Redis:
        how = chance.choice(["emptied", "emptied", "down", "snapshot"])
        return Redis(at, how, chance.choice([0.5, 8.0, 300.0]) if how == "down" else 0.0)
    if kind is Postgres:
        return Postgres(at, chance.choice([0.0, 5.0, 30.0]))
    if kind is Compact:
        return Compact(at, chance.randrange(2))
    return Retain(at) if kind is Retain else Time(at, chance.choice([0.5, 2.0, 2.0, 400.0]))
