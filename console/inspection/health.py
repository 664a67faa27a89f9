"""Summarises a system's health in one line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from console.inspection.partition_owners import without_owner
from console.inspection.snapshot import SystemSnapshot
from console.inspection.workers import Worker
from processing.worker_report import WORKERS
from topics.catalogue import group_of
from topics.kafka.transactions import LONG_S, OpenTransaction, long_open

STILL_S: Final = 30.0
"""A group that lags and makes no progress for this long is stuck."""
_MOST_HELD: Final = 3
"""Most open transactions to list."""
_SERVICES: Final = {"kafka": "Kafka", "postgres": "Postgres", "redis": "Redis"}


@dataclass(frozen=True)
class HealthSummary:
    """`reasons`: the problems, services first. `note`: the activity of a healthy system."""

    reasons: tuple[str, ...]
    note: str = ""

    @property
    def healthy(self) -> bool:
        """Whether there is no problem."""
        return not self.reasons

    def __str__(self) -> str:
        if self.healthy:
            return f"HEALTHY  {self.note}".rstrip()
        return f"UNHEALTHY  {'; '.join(self.reasons)}"


def assess(
    snapshot: SystemSnapshot, *, still_s: float = 0.0, workers: Sequence[str] = WORKERS
) -> HealthSummary:
    """Assess a snapshot. `still_s`: seconds for which records have waited without progress.

    `workers`: names of which at least one worker each must run, here or elsewhere; every other
    worker that was found must run, too. Empty: workers are not assessed.
    """
    reasons = [
        f"{_SERVICES[each.service]}: {each.error}" for each in snapshot.services if not each.ok
    ]
    found = [each.name for each in snapshot.workers] if workers else []
    for name in dict.fromkeys((*workers, *found)):
        there = [each for each in snapshot.workers if each.name == name]
        if there or not _runs_elsewhere(name, snapshot):
            reasons += _missing(name, there)
    if snapshot.log:  # not counted as lag: no worker can read past it
        reasons += _held(long_open(snapshot.log.open, snapshot.at), snapshot.at)
        reasons += [str(each) for each in snapshot.log.unread if each.records]
        reasons += [each.what for each in without_owner(snapshot.groups, snapshot.log.groups)]
    if snapshot.lag and still_s > STILL_S:
        reasons.append(f"{snapshot.lag:,} records wait and nothing moved for {still_s:.0f} s")
    return HealthSummary(tuple(reasons), "" if reasons else _note(snapshot))


def _held(found: Sequence[OpenTransaction], now: float) -> list[str]:
    """Return lines for the oldest open transactions, and one with the number of others."""
    oldest = sorted(found, key=lambda each: -each.age_s(now))
    lines = [each.described(now) for each in oldest[:_MOST_HELD]]
    if more := len(oldest) - len(lines):
        lines.append(
            f"and {more:,} more partitions with transactions open for more than {LONG_S:.0f} s "
            "(`headstart status --json` lists all)"
        )
    return lines


def _runs_elsewhere(name: str, snapshot: SystemSnapshot) -> bool:
    """Return whether the broker says that workers of this name own partitions."""
    state = snapshot.log.groups.get(group_of(name)) if snapshot.log else None
    return state is not None and bool(state.owned)


def _missing(name: str, there: Sequence[Worker]) -> Iterable[str]:
    """Yield problems of the workers of one name; one that ended is none if another runs."""
    if not there:
        yield f"no worker {name}"
    elif not any(each.running for each in there):
        yield f"worker {name} {there[0].trouble} (process {there[0].pid})"
    for each in there:
        if each.running and (trouble := each.trouble):
            yield f"worker {name} {trouble}"
        if each.running and each.clock:
            yield f"worker {name}: {each.clock}"
        if each.running and each.lost:
            yield (
                f"retention deleted {each.lost:,} records before worker {name} had read them "
                "(`headstart doctor` says which)"
            )


def _note(snapshot: SystemSnapshot) -> str:
    if snapshot.lag:
        return f"catching up: {snapshot.lag:,} records to go"
    return "everything is taken in" if snapshot.log else ""
