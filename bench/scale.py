"""How the cost of an event changes with workers, partitions and contexts.

Each case has a broker and a drained backlog of its own. Beside the rate stands the CPU time an
event: on cores that several processes share, it alone shows what more cores would give.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from bench.support.backlog_run import BacklogSample, Workers, cost, drain
from bench.support.cpu_quota import share
from bench.support.measuring import echo, events, fresh_stack, produce
from bench.support.repeating import Round, medians, ratio

REPEAT: Final = 3


class ScaleCase(NamedTuple):
    """One backlog and the workers that drain it."""

    workers: int = 1
    partitions: int = 8
    contexts: int = 200
    cores: float | None = None
    """Most that each worker may take; None: what there is."""


HELD: Final = 0.25
"""Of a core: four workers, the broker and Redis then fit on two."""
BASE: Final = ScaleCase()
CASES: Final = {
    "workers": (ScaleCase(workers=2), ScaleCase(workers=4)),
    "held": tuple(ScaleCase(workers=count, cores=HELD) for count in (1, 2, 4)),
    "partitions": (ScaleCase(partitions=1), ScaleCase(partitions=32)),
    "contexts": (
        ScaleCase(contexts=100),
        ScaleCase(contexts=10_000),
        ScaleCase(contexts=100_000),
        ScaleCase(contexts=1_000_000),
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
    the events are left out, and those with a CPU quota where permission for it is missing
    (`bench.support.cpu_quota`). Raises `ValueError` for another name.
    """
    if unknown := sorted(set(vary) - CASES.keys()):
        raise ValueError(f"--vary {unknown[0]}: one of {', '.join(CASES)}")
    wanted = [
        case
        for case in (BASE, *(case for name in CASES if name in vary for case in CASES[name]))
        if case.contexts <= 2 * count and _to_be_had(case)
    ]
    rounds = [  # cases take turns: the machine may go faster or slower meanwhile
        {case: _measured(kafka, case, count, learner) for case in wanted} for _ in range(repeat)
    ]
    cases = [
        {
            **case._asdict(),
            "events": _events(case, count),
            **medians([found[case] for found in rounds]),
        }
        for case in wanted
    ]
    return {
        "events_per_s": cases[0]["events_per_s"],
        "cpu_us": cases[0]["cpu_us"],
        **medians([_compared(found) for found in rounds]),
        "cases": cases,
        "learner": learner,
        "framing": "one event per record in filled batches, about 480 bytes each; one context "
        "level; as many events as asked for, or two for each context; CPU time of the workers' "
        "processes, from when all of them share the backlog, held ones in its second half; null: "
        "one was through before",
        "broker": kafka,
    }


def _compared(found: Mapping[ScaleCase, Round]) -> Round:
    """Return several workers' rate as a multiple of one's, in one round.

    Here; and on cores of their own, which is computed: as many as there are, less by what an event
    costs more among several. Where each is held to a share of a core, two cores have it for all.
    """
    ratios: dict[str, float | None] = {}
    for case, several in found.items():
        if case.workers == 1:
            continue
        one, name = found[case._replace(workers=1)], f"ratio_{case.workers}_workers"
        here = own = None
        if one["cpu_us"] and several["cpu_us"] and several["events_per_s"]:
            here = ratio(several["events_per_s"], one["events_per_s"])
            own = ratio(case.workers * one["cpu_us"], several["cpu_us"])
        ratios |= {f"{name}_held": here} if case.cores else {name: here, f"{name}_own_cores": own}
    return ratios


def _events(case: ScaleCase, count: int) -> int:
    return max(count, 2 * case.contexts)


def _measured(kafka: str, case: ScaleCase, count: int, learner: str) -> Round:
    """Return the figures of one backlog; each None where it was through too soon."""
    workers, number = Workers(case.workers, learner, cores=case.cores), _events(case, count)
    with fresh_stack(kafka, case.partitions) as (addresses, folder):
        made = events(number, case.contexts, partitions=case.partitions)
        asyncio.run(produce(addresses.kafka, made))
        try:
            found = cost(_warm(case, drain(addresses, folder, number, workers)))
        except ValueError as error:
            echo(f"{case}: {error}")
            return {"events_per_s": None, "cpu_us": None, "largest_worker_mb": None}
    echo(f"{case}: {found.events_per_s:,.0f} events/s, {found.cpu_us:.1f} us of CPU each")
    return {
        "events_per_s": round(found.events_per_s),
        "cpu_us": round(found.cpu_us, 2),
        "largest_worker_mb": round(found.resident_mb),
    }


def _to_be_had(case: ScaleCase) -> bool:
    if case.cores is None:
        return True
    try:
        with share(case.cores):
            return True
    except PermissionError as error:
        echo(f"{case} left out: {error}")
        return False


def _warm(case: ScaleCase, looks: Sequence[BacklogSample]) -> Sequence[BacklogSample]:
    """Leave out the first half of what workers with little of a core did.

    Making ready takes them seconds, which would count for one and not for several: those are looked
    at from when the last of them has partitions.
    """
    if case.cores is None:
        return looks
    half = looks[-1].events / 2
    return [each for each in looks if each.events >= half]
