"""How the cost of an event changes with workers, partitions, contexts and history.

Each case has a broker and a drained backlog of its own. Beside the rate stands the CPU time an
event: on cores that several processes share, it alone says what more cores would give.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from bench import history
from bench.draining import Workers, cost, drain
from bench.measuring import events, fresh_stack, produce, say
from bench.repeating import repeated

REPEAT: Final = 3


class Case(NamedTuple):
    """One backlog and who drains it."""

    workers: int = 1
    partitions: int = 8
    contexts: int = 200


BASE: Final = Case()
CASES: Final = (
    BASE,
    Case(workers=2),
    Case(workers=4),
    Case(partitions=1),
    Case(partitions=32),
    Case(contexts=100),
    Case(contexts=10_000),
    Case(contexts=100_000),
    Case(contexts=1_000_000),
)


def run(
    kafka: str, count: int = 1_000_000, repeat: int = REPEAT, learner: str = "ema"
) -> dict[str, Any]:
    """Return a table of cases, how they compare with one worker, and a short history."""
    cases = {case: _measured(kafka, case, count, repeat, learner) for case in CASES}
    base = cases[BASE]
    return {
        "events_per_s": base["events_per_s"],
        "cpu_us": base["cpu_us"],
        **{
            figure: value
            for workers in (2, 4)
            for figure, value in _compared(base, cases[Case(workers=workers)], workers).items()
        },
        "cases": list(cases.values()),
        "history": history.run(kafka, 2 * count, learner=learner),
        "learner": learner,
        "framing": "one event per record in filled batches, about 480 bytes each; one context "
        "level, each context at least twice; CPU time of the workers' processes",
        "broker": kafka,
    }


def _compared(base: dict[str, Any], case: dict[str, Any], workers: int) -> dict[str, float]:
    """Return several workers' rate as a multiple of one's: here, and on cores of their own.

    The latter is computed: as many as there are, less by what an event costs more among several.
    """
    return {
        f"ratio_{workers}_workers": round(case["events_per_s"] / base["events_per_s"], 2),
        f"ratio_{workers}_workers_own_cores": round(workers * base["cpu_us"] / case["cpu_us"], 2),
    }


def _measured(kafka: str, case: Case, count: int, repeat: int, learner: str) -> dict[str, Any]:
    count = max(count, 2 * case.contexts)

    def once(_number: int) -> dict[str, float]:
        with fresh_stack(kafka, case.partitions) as (addresses, folder):
            made = events(count, case.contexts, partitions=case.partitions)
            asyncio.run(produce(addresses.kafka, made))
            looks = drain(addresses, folder, count, Workers(case.workers, learner))
        found = cost(looks)
        say(f"{case}: {found.events_per_s:,.0f} events/s, {found.cpu_us:.1f} us of CPU each")
        return {
            "events_per_s": round(found.events_per_s),
            "cpu_us": round(found.cpu_us, 2),
            "largest_worker_mb": round(found.resident_mb),
        }

    return {**case._asdict(), "events": count, **repeated(once, repeat)}
