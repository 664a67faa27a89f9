"""The workers of a data directory: which ended or end again and again, by what, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from console.inspection.doctor.findings import ERROR, OK, WARNING, Finding
from console.inspection.workers import Worker

_NOTED: Final = (
    "its log says which (redis.repaired, redis.contested, redis.kept); what else writes to Redis "
    "needs a Redis, or a database number, of its own"
)


def check_workers(found: Sequence[Worker], data: Path) -> Iterator[Finding]:
    """Yield how each worker of the directory `data` is. Pure."""
    if not found:
        yield Finding(
            "workers", WARNING, "none has ever run on this data directory", "headstart up"
        )
    for each in found:
        name = f"{each.name}-{each.instance}"
        log = data / "workers" / "logs" / f"{name}.log"
        if (trouble := each.trouble) is None:
            yield Finding("workers", OK, f"{name} works")
        elif _is_wrong(each, found):
            remedy = (
                "correct what made it end; `headstart up` then starts it again by itself, and "
                f"where none runs, start it. Its log: {log}"
            )
            yield Finding("workers", ERROR, f"{name} {trouble}", remedy)
        else:
            yield Finding("workers", WARNING, f"{name} {trouble}", f"see its log: {log}")
        for note in each.redis_notes:
            yield Finding("served", WARNING, f"{name}: {note}", _NOTED)


def _is_wrong(worker: Worker, found: Sequence[Worker]) -> bool:
    """Return whether it ended, or ends again and again, and no namesake does its work.

    One that was stopped, with all others and without an error, is not wrong.
    """
    if worker.refused and not worker.running:
        return True
    if any(each.name == worker.name and each.trouble is None for each in found):
        return False
    if worker.ended_by is not None:
        return True
    return not worker.running and any(each.running for each in found)
