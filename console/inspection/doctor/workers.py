"""Checks the workers of a data directory: which ended or keep ending, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from console.inspection.doctor.findings import ERROR, OK, WARNING, Finding
from console.inspection.workers import Worker

_NOTED: Final = (
    "its log names it (redis_check.repaired, redis_check.contested, "
    "commands.unknown_setting_kept); give other programs that write to Redis another server or "
    "database number"
)
_SYNCHRONISE: Final = (
    "synchronise the clocks of its host and of the services (NTP); docs/how-to/fix-a-clock.md has "
    "what a wrong one does"
)
_LOST: Final = (
    "its log (records.lost_to_retention) and `headstart dead-letters list` name them; raise the "
    "topic's retention.ms above the longest time that workers are down"
)
_WITHOUT_VECTORS: Final = (
    "search by words, contexts and queries goes on; the worker fills the vectors in as soon as the "
    "model or pgvector can be used (HEADSTART_EMBEDDING_URL, `headstart migrate`)"
)


def check_workers(found: Sequence[Worker], data: Path) -> Iterator[Finding]:
    """Yield the state of each worker of the directory `data`. Pure."""
    if not found:
        remedy = "headstart up; on services of your own headstart worker all"
        yield Finding("workers", WARNING, "none has ever run on this data directory", remedy)
    for each in found:
        name = f"{each.name}-{each.instance}"
        log = data / "workers" / "logs" / f"{name}.log"
        if (trouble := each.trouble) is None:
            yield Finding("workers", OK, f"{name} works")
        elif _is_wrong(each, found):
            remedy = (
                "correct the cause; a running `headstart up` then restarts it, otherwise start "
                f"it. Its log: {log}"
            )
            yield Finding("workers", ERROR, f"{name} {trouble}", remedy)
        else:
            yield Finding("workers", WARNING, f"{name} {trouble}", f"see its log: {log}")
        if each.running and each.clock:
            yield Finding("clock", ERROR, f"{name}: {each.clock}", _SYNCHRONISE)
        if each.running and each.lost:
            what = f"{name}: retention deleted {each.lost:,} records before it had read them"
            yield Finding("retention", ERROR, what, _LOST)
        if each.degraded:
            what = f"{name} stores episodes without vectors: {each.degraded}"
            yield Finding("memory", WARNING, what, _WITHOUT_VECTORS)
        for note in each.redis_notes:
            yield Finding("served", WARNING, f"{name}: {note}", _NOTED)


def _is_wrong(worker: Worker, found: Sequence[Worker]) -> bool:
    """Return whether it ended, or keeps ending, and no worker of the same name runs.

    Stopping all workers without an error is not a problem.
    """
    if worker.refused and not worker.running:
        return True
    if any(each.name == worker.name and each.trouble is None for each in found):
        return False
    if worker.ended_by is not None:
        return True
    return not worker.running and any(each.running for each in found)
