"""Thresholds to publish to Redis, the newest of each context. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from topics.schema.json_schema import PublishedThreshold


class PendingThresholds:
    """Keeps the newest version of each (tenant, path) until it is drained.

    Example: `pending.add(batch)`, then publish `batch = pending.drain()`; if that fails,
    `pending.add(batch)` puts it back without overwriting newer versions.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], PublishedThreshold] = {}

    def add(self, batch: Iterable[PublishedThreshold]) -> None:
        """Add each threshold unless a newer version of its context is pending."""
        for threshold in batch:
            context = (threshold.tenant, threshold.path)
            known = self._newest.get(context)
            if known is None or _version(threshold) >= _version(known):
                self._newest[context] = threshold

    def drain(self) -> list[PublishedThreshold]:
        """Remove and return all pending thresholds."""
        waiting = list(self._newest.values())
        self._newest.clear()
        return waiting

    def __len__(self) -> int:
        return len(self._newest)


def _version(threshold: PublishedThreshold) -> tuple[int, int]:
    return threshold.epoch, threshold.offset
