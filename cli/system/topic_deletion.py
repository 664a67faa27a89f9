"""Deletes the topics of one log, once nothing in them is needed any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from settings import Settings

MEMBERS_S: Final = 20.0
"""Longer than the group session of an ended worker (agents/health/stall_guard.py)."""


async def delete_log(settings: Settings, *, discard_unprocessed: bool = False) -> list[str]:
    """Delete the topics and consumer groups of the log; return the names of the topics.

    Raises `RuntimeError` if workers run, the broker keeps its log only in memory, or, without
    `discard_unprocessed`, events would be lost; and the errors of the services.
    """
    from topics.catalogue import (
        EPISODES_GROUP,
        HISTORY_GROUP,
        OF_ONE_LOG,
        PREDICTIONS_GROUP,
        THRESHOLDS_GROUP,
    )
    from topics.kafka.admin import delete_topics
    from topics.kafka.groups import delete_groups

    await _require_lasting_log(settings)
    require_no_workers(settings)
    if not discard_unprocessed:
        await _require_processed(settings)
    groups = (THRESHOLDS_GROUP, EPISODES_GROUP, HISTORY_GROUP, PREDICTIONS_GROUP)
    await delete_groups(settings.kafka, groups, MEMBERS_S)
    if not discard_unprocessed:  # that may have taken 20 s, in which a shipper sends more
        await _require_processed(settings)
    return await delete_topics(settings.kafka, [topic.name for topic in OF_ONE_LOG])


async def _require_lasting_log(settings: Settings) -> None:
    from contextlib import suppress

    from topics.epoch import read_minted_epoch
    from topics.kafka.admin import TopicsMissing

    with suppress(TopicsMissing):
        if (await read_minted_epoch(settings.kafka))[0].volatile:
            raise RuntimeError(
                "the embedded broker's topics end with `headstart up`, and the next start creates "
                "them: stop it instead. Nothing was deleted"
            )


def require_no_workers(settings: Settings) -> None:
    """Raise `RuntimeError` if a worker of the data directory runs."""
    from console.inspection.workers import find_workers

    workers = find_workers(settings.data)
    running = [f"{each.name} (process {each.pid})" for each in workers if each.running]
    if running:
        raise RuntimeError(
            f"workers run: {', '.join(running)}. Stop them first (with `up`: start it with "
            "--no-workers). Nothing was deleted"
        )


async def _require_processed(settings: Settings) -> None:
    from replay.log.unprocessed import count_unprocessed

    found = await count_unprocessed(settings.kafka, settings.postgres)
    if found.events:
        raise RuntimeError(
            f"this would lose {found}. Stop executors and whatever ships their spools, start the "
            "workers (`headstart up`, `headstart worker all`), wait until `headstart status` shows "
            "lag 0 for every group, export again what was learned, stop the workers, and try "
            "again; --discard-unprocessed deletes them nevertheless. No topic was deleted"
        )
