"""How unevenly a workload falls on partitions: real keys, placed as Kafka places them.

Nothing runs and nothing is measured: shares follow from the keys. Workflow types of many tenants
have Zipf's law as their rates (the r-th busiest has weight r^-s); the seed decides which of them is
how busy. Any one key belongs to one partition, whatever their number: its share is the floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import median
from typing import Any, Final, NamedTuple

from bench.support.measuring import echo
from processing.records.partitioner import partition_for

TENANTS, TYPES = 200, 25
PARTITIONS: Final = (1, 8, 32, 64, 128, 256)
EXPONENTS: Final = (0.0, 0.5, 0.8, 1.0, 1.2)
SEEDS: Final = 20

Key = tuple[str, str]
"""Tenant and workflow type."""


class Skew(NamedTuple):
    """Shares of all events, between 0 and 1."""

    hottest_partition: float
    hottest_key: float


def keys(tenants: int = TENANTS, types: int = TYPES) -> list[Key]:
    """Return the workflow types of all tenants."""
    return [
        (f"tenant-{tenant}", f"workflow-{number}")
        for tenant in range(tenants)
        for number in range(types)
    ]


def skew(of: Sequence[Key], partitions: int, exponent: float, seed: int) -> Skew:
    """Return how uneven a workload is, from its seed alone."""
    order = list(of)
    Random(seed).shuffle(order)
    weights = [rank**-exponent for rank in range(1, len(order) + 1)]
    loads = [0.0] * partitions
    for (tenant, workflow_type), weight in zip(order, weights, strict=True):
        loads[partition_for(tenant, workflow_type, partitions)] += weight
    total = sum(weights)
    return Skew(max(loads) / total, weights[0] / total)


def run(seeds: int = SEEDS) -> dict[str, Any]:
    """Return a table: the hottest partition's share, by partitions and exponent."""
    all_keys = keys()
    table = []
    for exponent in EXPONENTS:
        for partitions in PARTITIONS:
            found = [skew(all_keys, partitions, exponent, seed) for seed in range(seeds)]
            shares = sorted(each.hottest_partition for each in found)
            table.append(
                {
                    "exponent": exponent,
                    "partitions": partitions,
                    "hottest_partition": round(median(shares), 4),
                    "worst_of_seeds": round(shares[-1], 4),
                    "hottest_key": round(found[0].hottest_key, 4),
                    "uneven": round(median(shares) * partitions, 2),
                    "partitions_worth": round(1 / median(shares), 1),
                }
            )
            echo(f"{table[-1]}")
    return {
        "table": table,
        "seeds": seeds,
        "framing": f"{TENANTS} tenants with {TYPES} workflow types each; medians over seeds; "
        "uneven: the hottest partition's load in even shares; partitions_worth: how many evenly "
        "loaded ones carry as much",
    }
