"""The simulator by hand: replay a seed, run many, or soak.

python -m tests.simulation --seed 7             one seed, with its schedule and trace
python -m tests.simulation --seed 7 --shrink    the same, with only the faults that it takes
python -m tests.simulation --schedules 10000    seeds 0 to 9,999 on every core
python -m tests.simulation --seconds 3600       fresh seeds for an hour
python -m tests.simulation --controls 3000      every rule switched off in turn
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.faults import Schedule
from tests.simulation.many import CHUNK, Tally, first_failures, run_chunks, run_seed, simulated
from tests.simulation.rules import RULES
from tests.simulation.run import run, schedule_of

PROGRESS_S = 10.0


def main() -> int:
    """Return the exit code: 1 where the promise was broken."""
    parser = argparse.ArgumentParser(
        "python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="replay one seed, with its trace")
    parser.add_argument("--without", choices=RULES, help="switch a rule off (with --seed)")
    parser.add_argument("--shrink", action="store_true", help="leave out faults it fails without")
    parser.add_argument("--schedules", type=int, help="how many seeds to run")
    parser.add_argument("--begin", type=int, default=0, help="the first of them")
    parser.add_argument("--seconds", type=float, help="soak: run fresh seeds for so long")
    parser.add_argument("--controls", type=int, help="seeds to try without each rule")
    given = parser.parse_args()
    if given.seed is not None:
        return replay(given.seed, given.without, shrink=given.shrink)
    if given.controls is not None:
        return controls(given.controls)
    if given.seconds is not None:
        return many(_until(time.monotonic() + given.seconds))
    return many(range(given.begin, given.begin + (given.schedules or 1_000), CHUNK))


def replay(seed: int, rule: str | None, *, shrink: bool) -> int:
    """Run one seed, and print all that happened."""
    plan = schedule_of(seed)
    result = run_seed(seed, rule, trace=True)
    if shrink and result.wrong and rule is None:
        plan = shrunk(plan)
        with simulated():
            result = run(plan, trace=True)
    print(*result.trace, sep="\n")
    print(plan)
    print(*(f"WRONG: {what}" for what in result.wrong), sep="\n")
    print("broken" if result.wrong else "kept", f"after {result.steps} steps")
    return 1 if result.wrong else 0


def shrunk(plan: Schedule) -> Schedule:
    """Return the schedule without the faults that its failure does not need."""
    with simulated():
        for fault in plan.faults:
            fewer = replace(plan, faults=tuple(each for each in plan.faults if each != fault))
            if run(fewer).wrong:
                plan = fewer
    return plan


def many(begins: range | Iterator[int]) -> int:
    """Run chunks of seeds; print progress and every failing seed."""
    total, begun, reported_at = Tally(), time.monotonic(), time.monotonic()
    for tally in run_chunks(begins):
        total.add(tally)
        for seed, wrong in tally.failed.items():
            print(schedule_of(seed), *(f"WRONG: {what}" for what in wrong[:5]), sep="\n")
            print(f"replay: python -m tests.simulation --seed {seed}", flush=True)
        if time.monotonic() - reported_at > PROGRESS_S:
            reported_at = time.monotonic()
            rate = total.schedules / (reported_at - begun)
            print(f"{total.schedules:,} schedules, {rate:.0f}/s, {len(total.failed)} failed",
                  file=sys.stderr, flush=True)  # fmt: skip
    seconds = round(time.monotonic() - begun, 1)
    print(json.dumps({
        "schedules": total.schedules, "steps": total.steps, "seconds": seconds,
        "failed": sorted(total.failed),
    }))  # fmt: skip
    return 1 if total.failed else 0


def controls(most: int) -> int:
    """Print the first seed that fails without each rule."""
    for rule, tally in first_failures(RULES, most):
        found = next(iter(tally.failed.items()), None)
        text = f"not in {most}" if found is None else f"{found[0]:6}  {found[1][0][:110]}"
        print(f"{rule:38} {text}", flush=True)
    return 0


def _until(deadline: float) -> Iterator[int]:
    begin = time.time_ns() // 1_000_000 % 10**9 * 1_000
    for chunk in itertools.count():
        if time.monotonic() > deadline:
            return
        yield begin + chunk * CHUNK


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main())
