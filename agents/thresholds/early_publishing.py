"""Publishes what contexts answer ahead of their rows (docs/decisions/0021-publishing-early.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agents.thresholds.partition import OwnedPartition
from processing.task import apply_pending_updates


class EarlyPublisher:
    """Publishes the answers of a worker's partitions together, one request at a time.

    What contexts learn while a request is in flight goes with the next one.
    """

    def __init__(self, on_error: Callable[[str, BaseException], None]) -> None:
        """`on_error`: ends the process on an error."""
        self._on_error = on_error
        self._due: dict[OwnedPartition, None] = {}
        self._task: asyncio.Task[None] | None = None

    def publish_soon(self, partition: OwnedPartition) -> None:
        """Publish the answers of a partition with the next request."""
        self._due[partition] = None
        if self._task is None:
            self._task = asyncio.create_task(self._publish_due())

    async def _publish_due(self) -> None:
        try:
            while self._due:
                due, self._due = list(self._due), {}
                apply_pending_updates([each.core for each in due])
                requests = []
                for each in due:
                    answers = each.take_answers()
                    requests.append((each, answers, each.publisher.publish(answers.thresholds)))
                for each, answers, request in requests:
                    await request
                    each.note_published(answers)
        except Exception as error:
            self._on_error("publishing", error)
        self._task = None
