"""Computes the tables of docs/explanation/scaling.md: cores and servers that a rate needs.

`python -m bench.capacity FIGURES.json ... [--rate 1000000]`: the files hold what `python -m bench
footprint --json` and `scale --json` printed; of `scale` the cost of the threshold agent is taken,
which is then that of a backlog. It computes and measures nothing: a part's cores are its CPU time
an event times the rate, and no core is planned to be busier than 70 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from bench.skew import EXPONENTS, PARTITIONS, keys, skew

BUSY: Final = 0.7
SERVER_CORES: Final = 16
ONE_CORE: Final = {"shipper", "episodes", "history", "thresholds", "redis"}
"""Processes that use one core at most; the others use all of a server."""


class Need(NamedTuple):
    """What one part takes at a rate."""

    part: str
    cpu_us: float
    cores: float
    processes: int
    """Of one core each, or servers of `SERVER_CORES`."""
    most_per_s: float
    """Events a second at which one of them saturates (at `BUSY`)."""


def costs(figures: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the CPU microseconds an event of each part. Raises `ValueError` without any."""
    found: dict[str, float] = {}
    for each in figures:
        for name, process in each.get("processes", {}).items():
            if "cpu_us" in process:
                found[name] = process["cpu_us"]
    for each in figures:
        if "cases" in each and each.get("cpu_us") is not None:
            found["thresholds"] = each["cpu_us"]
    if not found:
        raise ValueError("no costs in these files: give what footprint or scale printed (--json)")
    return found


def needs(cost: Mapping[str, float], rate: float) -> list[Need]:
    """Return what each part needs at `rate` events a second."""
    found = []
    for part, cpu_us in sorted(cost.items()):
        cores = cpu_us * rate / 1e6
        each = 1 if part in ONE_CORE else SERVER_CORES
        most = each * BUSY * 1e6 / cpu_us if cpu_us else float("inf")
        found.append(Need(part, cpu_us, cores, max(1, ceil(rate / most)), most))
    return found


def fewest_partitions(rate: float, most_per_s: float, exponent: float) -> int | None:
    """Return how many partitions keep the hottest below `most_per_s`; None: no number does.

    Of those that `bench skew` simulates, with the workload of its first seed.
    """
    all_keys = keys()
    for partitions in PARTITIONS:
        if skew(all_keys, partitions, exponent, 0).hottest_partition * rate <= most_per_s:
            return partitions
    return None


def page(cost: Mapping[str, float], rate: float) -> Iterator[str]:
    """Yield the lines of two Markdown tables."""
    yield f"| part | CPU µs an event | cores at {rate:,.0f}/s | how many | one carries, events/s |"
    yield "|---|---|---|---|---|"
    found = needs(cost, rate)
    for need in found:
        kind = "processes" if need.part in ONE_CORE else f"servers of {SERVER_CORES} cores"
        yield (
            f"| {need.part} | {need.cpu_us:.1f} | {need.cores:.1f} | {need.processes} {kind} "
            f"| {need.most_per_s:,.0f} |"
        )
    most = min((need.most_per_s for need in found if need.part == "thresholds"), default=None)
    if most is None:
        return
    yield ""
    yield "| skew (Zipf exponent) | hottest key's share | partitions | most events/s by that key |"
    yield "|---|---|---|---|"
    for exponent in EXPONENTS:
        share = skew(keys(), 1, exponent, 0).hottest_key
        partitions = fewest_partitions(rate, most, exponent)
        yield (
            f"| {exponent} | {share:.2%} | {partitions or 'no number is enough'} "
            f"| {most / share:,.0f} |"
        )


def main() -> None:
    """Print the page for the files of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.capacity",
        description="What a rate needs, from measured CPU time an event.",
        epilog="example: python -m bench.capacity footprint.json scale.json --rate 1000000",
    )
    parser.add_argument("figures", nargs="+", type=Path, help="what a bench printed with --json")
    parser.add_argument("--rate", type=float, default=1e6, help="events per second")
    arguments = parser.parse_args()
    figures = [orjson.loads(file.read_bytes().splitlines()[-1]) for file in arguments.figures]
    print("\n".join(page(costs(figures), arguments.rate)))


if __name__ == "__main__":
    main()
