"""How the cost of an event changes with workers, partitions and contexts.

Each case has a broker and a drained backlog of its own. Beside the rate stands the CPU time an
event: on cores that several processes share, it alone says what more cores would give.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from bench.draining import Workers, cost, drain
from bench.measuring import events, fresh_stack, produce, say
from bench.repeating import ratio, repeated

REPEAT: Final = 3


class Case(NamedTuple):
    """One backlog and who drains it."""

    workers: int = 1
    partitions: int = 8
    contexts: int = 200


BASE: Final = Case()
CASES: Final = {
    "workers": (Case(workers=2), Case(workers=4)),
    "partitions": (Case(partitions=1), Case(partitions=32)),
    "contexts": (
        Case(contexts=100),
        Case(contexts=10_000),
        Case(contexts=100_000),
        Case(contexts=1_000_000),
    ),
}


def run(
    kafka: str,
    count: int = 1_000_000,
    repeat: int = REPEAT,
    learner: str = "ema",
    vary: Sequence[str] = tuple(CASES),
) -> dict[str, Any]:
    """Return a table of cases, and how several workers compare with one.

    `vary`: what the cases differ in from the first, of `CASES`. Those of more contexts than twice
    the events are left out. Raises `ValueError` for another name.
    """
    if unknown := sorted(set(vary) - CASES.keys()):
        raise ValueError(f"--vary {unknown[0]}: one of {', '.join(CASES)}")
    wanted = (BASE, *(case for name in CASES if name in vary for case in CASES[name]))
    cases = {
        case: _measured(kafka, case, count, repeat, learner)
        for case in wanted
        if case.contexts <= 2 * count
    }
    base = cases[BASE]
    return {
        "events_per_s": base["events_per_s"],
        "cpu_us": base["cpu_us"],
        **{
            figure: value
            for case, found in cases.items()
            if case.workers > 1
            for figure, value in _compared(base, found, case.workers).items()
        },
        "cases": list(cases.values()),
        "learner": learner,
        "framing": "one event per record in filled batches, about 480 bytes each; one context "
        "level; as many events as asked for, or two for each context; CPU time of the workers' "
        "processes, from when all of them share the backlog; null: one was through before",
        "broker": kafka,
    }


def _compared(base: dict[str, Any], case: dict[str, Any], workers: int) -> dict[str, float | None]:
    """Return several workers' rate as a multiple of one's: here, and on cores of their own.

    The latter is computed: as many as there are, less by what an event costs more among several.
    """
    here = own = None
    if None not in (base["cpu_us"], case["cpu_us"]):
        here = ratio(case["events_per_s"], base["events_per_s"])
        own = ratio(workers * base["cpu_us"], case["cpu_us"])
    return {f"ratio_{workers}_workers": here, f"ratio_{workers}_workers_own_cores": own}


def _measured(kafka: str, case: Case, count: int, repeat: int, learner: str) -> dict[str, Any]:
    count = max(count, 2 * case.contexts)

    def once(_number: int) -> dict[str, float | None]:
        with fresh_stack(kafka, case.partitions) as (addresses, folder):
            made = events(count, case.contexts, partitions=case.partitions)
            asyncio.run(produce(addresses.kafka, made))
            try:
                found = cost(drain(addresses, folder, count, Workers(case.workers, learner)))
            except ValueError as error:
                say(f"{case}: {error}")
                return {"events_per_s": None, "cpu_us": None, "largest_worker_mb": None}
        say(f"{case}: {found.events_per_s:,.0f} events/s, {found.cpu_us:.1f} us of CPU each")
        return {
            "events_per_s": round(found.events_per_s),
            "cpu_us": round(found.cpu_us, 2),
            "largest_worker_mb": round(found.resident_mb),
        }

    return {**case._asdict(), "events": count, **repeated(once, repeat)}
