"""Whether a system is well, in one line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from console.inspection.partition_owners import without_owner
from console.inspection.snapshot import SystemSnapshot
from console.inspection.workers import Worker
from processing.worker_report import WORKERS
from topics.kafka.transactions import LONG_S, OpenTransaction, long_open

STILL_S: Final = 30.0
"""A group that lags and has come no further for so long is stuck."""
_MOST_HELD: Final = 3
"""Open transactions that are told one by one."""
_SERVICES: Final = {"kafka": "Kafka", "postgres": "Postgres", "redis": "Redis"}


@dataclass(frozen=True)
class HealthSummary:
    """`reasons`: what is wrong, services first. `note`: what it does, where nothing is wrong."""

    reasons: tuple[str, ...]
    note: str = ""

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.reasons

    def __str__(self) -> str:
        if self.healthy:
            return f"HEALTHY  {self.note}".rstrip()
        return f"UNHEALTHY  {'; '.join(self.reasons)}"


def assess(
    look: SystemSnapshot, *, still_s: float = 0.0, workers: Sequence[str] = WORKERS
) -> HealthSummary:
    """Judge one look. `still_s`: seconds for which records have waited without any progress.

    `workers`: the names of which one must be running.
    """
    reasons = [f"{_SERVICES[each.service]}: {each.error}" for each in look.services if not each.ok]
    for name in workers:
        reasons += _missing(name, [each for each in look.workers if each.name == name])
    if look.log:  # nobody can work it off, so it is no lag
        reasons += _held(long_open(look.log.open, look.at), look.at)
        reasons += [each.what for each in without_owner(look.groups, look.log.groups)]
    if look.lag and still_s > STILL_S:
        reasons.append(f"{look.lag:,} records wait and nothing moved for {still_s:.0f} s")
    return HealthSummary(tuple(reasons), "" if reasons else _note(look))


def _held(found: Sequence[OpenTransaction], now: float) -> list[str]:
    """Return what is told of open transactions: of the oldest, and how many more there are."""
    oldest = sorted(found, key=lambda each: -each.age_s(now))
    told = [each.described(now) for each in oldest[:_MOST_HELD]]
    if more := len(oldest) - len(told):
        told.append(
            f"and {more:,} more partitions with transactions open for more than {LONG_S:.0f} s "
            "(`headstart status --json` lists all)"
        )
    return told


def _missing(name: str, there: Sequence[Worker]) -> Iterable[str]:
    """Yield what is wrong with the workers of one name; a namesake's end harms no one."""
    if not there:
        yield f"no worker {name}"
    elif not any(each.running for each in there):
        yield f"worker {name} {there[0].trouble} (process {there[0].pid})"
    for each in there:
        if each.running and (trouble := each.trouble):
            yield f"worker {name} {trouble}"


def _note(look: SystemSnapshot) -> str:
    if look.lag:
        return f"catching up: {look.lag:,} records to go"
    return "everything is taken in" if look.log else ""
