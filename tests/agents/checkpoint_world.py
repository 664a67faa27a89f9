"""Commits of one owner, and where they go, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from agents.thresholds.checkpoint_writer import Row
from processing.records.dead_letters import DeadLetter
from processing.state.rows import PARTITION_KEY, deleted, with_version
from processing.task import Checkpoint
from topics.schema.json_schema import PublishedThreshold


class World:
    """A changelog, a store, and a list of what happened; the targets of one owner."""

    def __init__(self) -> None:
        self.log: list[Row] = []
        self.table: dict[bytes, bytes] = {}
        self.held: int | None = None
        self.complete_from = 0
        self.happened: list[str] = []
        self.produced_again: list[bytes] = []
        self.owned = self.redis_is_there = True
        self.before_send: Callable[[], None] = lambda: None
        self.after_send: Callable[[], None] = lambda: None

    def current(self) -> bool:
        return self.owned

    async def send_dead_letters(self, _letters: Sequence[DeadLetter]) -> None:
        self.happened.append("dead letters")

    async def send_rows(self, rows: Sequence[Row], complete_from: int) -> tuple[int, int]:
        self.before_send()
        first = len(self.log)
        self.log.extend(rows)
        self.complete_from = complete_from
        self.happened.append("changelog")
        self.after_send()
        return first, len(self.log) - 1

    async def read_changelog(self, begin: int, end: int) -> Sequence[Row]:
        return self.log[begin:end]

    def get_row(self, key: bytes) -> bytes | None:
        return self.table.get(key)

    def write_rows(self, rows: Sequence[Row], changelog_offset: int | None) -> None:
        for key, value in rows:
            if value is None:
                self.table.pop(key, None)
            else:
                self.table[key] = value
        if changelog_offset is not None:
            self.held = changelog_offset
        self.happened.append("store")

    def publish(self, _thresholds: Sequence[PublishedThreshold]) -> None:
        self.happened.append("redis")

    async def wait_published(self) -> None:
        """Redis has it at once."""

    async def produce_thresholds(self, _moved: Sequence[PublishedThreshold]) -> None:
        self.happened.append("topic")

    async def produce_rows(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        self.happened.append("topic again")
        self.produced_again += [key for key, _row in rows]

    async def delete_published(self, _markers: Sequence[tuple[bytes, bytes]]) -> bool:
        self.happened.append("retracted")
        return self.redis_is_there

    def done(self, end: int) -> None:
        self.happened.append(f"done {end}")

    def last_rows(self) -> dict[bytes, bytes | None]:
        """What compaction would keep."""
        return dict(self.log)


EPOCH = 3


def row(offset: int, body: bytes = b"body", epoch: int = EPOCH) -> bytes:
    return with_version(deleted(0, 0) + body, epoch, offset)


def commit(end: int, **rows: bytes) -> Checkpoint:
    changed = [(key.encode(), value) for key, value in rows.items()]
    letter = DeadLetter(None, b"bad", [], 0, 3, "bad")
    return Checkpoint(end, [*changed, (PARTITION_KEY, row(end - 1))], [], [], [letter], 1)


def run(body: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(body, 60.0))
