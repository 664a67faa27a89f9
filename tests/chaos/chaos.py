"""Rounds of chaos: load, faults one after the other, quiet, the checker."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from learners.registry import DEFAULT, policy
from processing.config import LearningConfig
from replay.verify.verify import VerifyConfig, verify
from tests.chaos.checker import Checked, check
from tests.chaos.cluster import BROKERS, SESSION_S
from tests.chaos.faults import ALL_FAULTS, ALL_KILLS, FAULTS
from tests.chaos.flow import Flow
from tests.chaos.growth import GrowthWatch, judged
from tests.chaos.sustained import find_held
from tests.chaos.world import World
from topics.catalogue import EVENTS
from topics.kafka.reader import topic_state

QUIET_S = 3.0
DRAIN_S = 180.0
RECOVERY_PATIENCE_S = 60.0
FIRST_PER_S = 500.0
ROUND_S = 60.0
SOAK_ROUND_S = 1_200.0
SOAK_FAULT_S = 40.0
"""Of a round of a soak for each fault: the longest needs most of it."""
SHARE = 0.6
"""Of the rate that is held without faults, where no rate is given."""
LEAST_SHARE = 0.5
"""Of that rate, which the rounds must have reached."""
LATEST_S = SESSION_S + 5.0
"""After a broker's death thresholds flow again, in 95 of 100 cases."""

Echo = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """`faults_per_round` of the named faults follow one another within `round_s` seconds.

    `events_per_s`: 0: `SHARE` of what is held without faults, which is found first.
    """

    rounds: int
    round_s: float = ROUND_S
    events_per_s: float = 5_000.0
    brokers: int = 1
    seed: int = 1
    faults_per_round: int = 3
    names: Sequence[str] = tuple(FAULTS)
    soak: bool = False
    """Whether memory and open files of the workers are watched."""


def soak(
    hours: float,
    events_per_s: float,
    names: Sequence[str],
    seed: int,
    about_s: float = SOAK_ROUND_S,
) -> Plan:
    """Return the plan of a soak on several brokers, in rounds of about `about_s` seconds.

    The load stops between rounds until the checker has compared what the round came to.
    """
    seconds = hours * 3_600.0
    rounds = max(1, round(seconds / about_s))
    round_s = seconds / rounds
    faults = max(1, round(round_s / SOAK_FAULT_S))
    return Plan(rounds, round_s, events_per_s, BROKERS, seed, faults, names, soak=True)


@dataclass
class Report:
    """What all rounds came to."""

    rounds: list[Checked] = field(default_factory=list)
    seconds: float = 0.0
    recoveries: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    done: Counter[str] = field(default_factory=Counter)
    blamed: Counter[str] = field(default_factory=Counter)
    """Losses and differences, laid at the door of every fault of their round."""
    verify: dict[str, int] = field(default_factory=dict)
    brokers: int = 1
    held_per_s: int = 0
    """What was held without faults; 0: not looked for."""
    stalest: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """How old the stalest threshold became, in seconds, by fault."""
    growth: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of a soak: see `tests.chaos.growth.judged`, by worker."""
    failures: list[str] = field(default_factory=list)
    """What the supervisors said of workers that ended by themselves, or were stuck."""

    def as_json(self) -> dict[str, Any]:
        """Return the summary."""
        kills = [each for name in ALL_KILLS for each in self.recoveries[name]]
        events = sum(each.logged for each in self.rounds)
        return {
            "brokers": self.brokers,
            "rounds": len(self.rounds),
            "events": events,
            "events_per_s": round(events / self.seconds) if self.seconds else 0,
            "held_per_s": self.held_per_s or None,
            "sent_twice": sum(each.sent_twice for each in self.rounds),
            "lost": sum(each.lost for each in self.rounds),
            "double": sum(each.double for each in self.rounds),
            "differing": sum(each.differing for each in self.rounds),
            "recovery_p95_s": round(_p95(kills), 1) if kills else None,
            "workers_failed": len(self.failures),
            "verify": self.verify,
            **({"missed": self.missed()} if self.brokers > 1 else {}),
            **self._grown(),
        }

    def missed(self) -> list[str]:
        """Return the goals of several brokers that were not reached, by the name of the figure."""
        kills = [each for name in ALL_KILLS for each in self.recoveries[name]]
        slow = (
            sum(each.logged for each in self.rounds) < LEAST_SHARE * self.held_per_s * self.seconds
        )
        late = bool(kills) and _p95(kills) > LATEST_S
        return ["events_per_s"] * slow + ["recovery_p95_s"] * late

    def _grown(self) -> dict[str, Any]:
        if not self.growth:
            return {}
        verdicts = {each["verdict"] for each in self.growth.values()}
        flat = verdicts == {"flat"}
        return {"flat": flat, "grows": "grows" in verdicts, "workers": self.growth}


def failures(messages: Iterable[str]) -> list[str]:
    """Return what supervisors said of workers that were stuck, or ended with an error.

    Not of those that a signal ended, or that ended as they were asked to.
    """
    return [
        each
        for each in messages
        if " is stuck: " in each
        or (" ended with exit code " in each and " ended with exit code 0" not in each)
    ]


def _p95(values: Sequence[float]) -> float:
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=20, method="inclusive")[18]


def run(plan: Plan, folder: Path, echo: Echo) -> Report:
    """Run every round on one world; then replay the whole log against what it holds."""
    report, draw = Report(brokers=plan.brokers), random.Random(plan.seed)
    names = list(plan.names)
    order: list[str] = []
    with World(folder, plan.brokers) as world:
        echo(f"running on {world.addresses.kafka}; faults from seed {plan.seed}")
        if not plan.events_per_s:
            report.held_per_s, _steps = find_held(world, folder, FIRST_PER_S, echo)
            rate = SHARE * max(report.held_per_s, FIRST_PER_S)
            echo(f"{report.held_per_s:,} events/s are held without faults; rounds at {rate:,.0f}")
            plan = replace(plan, events_per_s=rate)
        with _watched(world, plan, report):
            for number in range(plan.rounds):
                while len(order) < plan.faults_per_round:
                    order += draw.sample(names, len(names))
                faults = [order.pop() for _ in range(plan.faults_per_round)]
                _round(world, plan, number, faults, draw, report, echo)
        echo("replaying the whole log")
        report.verify = verified(world, echo)
    return report


@contextmanager
def _watched(world: World, plan: Plan, report: Report) -> Iterator[None]:
    """Watch the workers of a soak for the length of a block."""
    if not plan.soak:
        yield
        return
    with GrowthWatch(lambda: world.workers) as watch:
        yield
    report.growth = {name: judged(found) for name, found in sorted(watch.samples.items())}


def _round(
    world: World,
    plan: Plan,
    number: int,
    faults: Sequence[str],
    draw: random.Random,
    report: Report,
    echo: Echo,
) -> None:
    tenant, journal = f"round-{number}", world.folder / f"journal-{number}"
    journal.mkdir()
    begin = asyncio.run(topic_state(world.addresses.kafka, EVENTS.name)).end
    said = len(world.messages)
    begun = time.monotonic()
    with Flow(world.addresses.redis, tenant) as flow:
        world.start_executors(tenant, journal, plan.events_per_s)
        world.sleep(QUIET_S)
        for place, name in enumerate(faults):
            _strike(world, name, draw, flow, report, echo)
            world.sleep(
                max(0.0, begun + plan.round_s * (place + 1) / len(faults) - time.monotonic())
            )
            report.stalest[name].append(flow.take_worst_s())
        world.stop_executors()
    report.seconds += time.monotonic() - begun
    left = world.drain(DRAIN_S)
    checked = check(world.addresses, tenant, journal, dict(begin))
    report.rounds.append(checked)
    if not checked.ok:
        report.blamed.update(faults)
    for each in (failed := failures(world.messages[said:])):
        echo(each)
    report.failures += failed
    echo(f"round {number + 1} of {plan.rounds} ({', '.join(faults)}): {checked}, {left} left")


def _strike(
    world: World, name: str, draw: random.Random, flow: Flow, report: Report, echo: Echo
) -> None:
    since = time.time_ns() // 1_000_000
    undo = ALL_FAULTS[name](world, draw)
    if name in ALL_KILLS:
        # Looking after the workers is what brings them back.
        recovered = _wait_fresh(world, flow, since)
        report.recoveries[name].append(recovered)
        echo(f"{name}: thresholds flow again everywhere after {recovered:.1f} s")
    if undo is not None:
        undo()
    report.done[name] += 1


def _wait_fresh(world: World, flow: Flow, since_ms: int) -> float:
    deadline = time.monotonic() + RECOVERY_PATIENCE_S
    while not flow.fresh(since_ms) and time.monotonic() < deadline:
        world.sleep(0.1)
    return time.time() - since_ms / 1000


def verified(world: World, echo: Echo) -> dict[str, int]:
    """Return what `verify` found over the whole log; print the first findings."""
    at = world.addresses
    config = VerifyConfig(at.kafka, at.postgres, at.redis, LearningConfig(policy(DEFAULT)))
    found = asyncio.run(verify(config, echo))
    for each in found.findings.named[:20]:
        echo(str(each))
    return {"events": found.events, "rows": found.rows, **found.findings.counts}
