"""Recreates the topics of one log, with what was learned and what waits in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.support.output import counted, echo

if TYPE_CHECKING:
    from replay.recreation.run import RecreatedLog
    from settings import Settings


def plan(settings: Settings, to: Path | None) -> dict[str, Any]:
    """Return what a recreation would do. Raises the errors of the broker."""
    from console.inspection.workers import find_workers
    from replay.recreation.saved_log import RECREATED
    from topics.epoch import Recreation, read_log_state

    state = asyncio.run(read_log_state(settings.kafka))
    interrupted = isinstance(state, Recreation)
    epoch = state.before if isinstance(state, Recreation) else state
    folder = (to or settings.data / f"log-of-epoch-{epoch.number}").resolve()
    return {
        "epoch": epoch.number,
        "partitions": epoch.partitions,
        "topics": [topic.name for topic in RECREATED],
        "folder": str(folder),
        "interrupted": interrupted,
        "workers": [each.name for each in find_workers(settings.data) if each.running],
    }


def describe_plan(planned: dict[str, Any]) -> list[str]:
    """Return a plan in lines."""
    lines = [
        f"--yes saves what was learned and what no worker has processed to {planned['folder']}, "
        f"deletes {', '.join(planned['topics'])}, and creates them again with "
        f"{counted(planned['partitions'], 'partition')} and what was saved; nothing was changed"
    ]
    if planned["interrupted"]:
        lines.append(
            f"a recreation of log epoch {planned['epoch']} was interrupted: --yes continues"
        )
    if planned["workers"]:
        lines.append(f"stop the workers first: {', '.join(planned['workers'])} run here")
    return lines


def recreate_topics(settings: Settings, folder: str) -> RecreatedLog:
    """Recreate the topics; what is carried over is saved to `folder`.

    Raises `RuntimeError` if workers run, and what `recreate_log` raises.
    """
    from importlib.metadata import version

    from cli.system.topic_deletion import require_no_workers
    from replay.recreation.run import RecreationTarget, recreate_log

    require_no_workers(settings)
    target = RecreationTarget(
        settings.kafka, settings.postgres, settings.redis, version("headstart-service")
    )
    return asyncio.run(recreate_log(target, Path(folder), echo))


def result_lines(done: RecreatedLog) -> list[str]:
    """Return what was done in lines."""
    carried = ", ".join(f"{count:,} of {topic}" for topic, count in done.records.items() if count)
    return [
        f"log epoch {done.epoch} follows {done.before}: {counted(sum(done.rows.values()), 'row')} "
        f"in {counted(len(done.rows), 'partition')}, each as it was saved",
        f"records that no worker has processed: {carried or 'none'}",
        "start the workers, then `headstart verify --caught-up`; then delete "
        f"{done.folder}, which has what users sent",
    ]
