"""Keeps Redis at what people set: every threshold worker follows the log of commands.

It lives beside the threshold agent because that one writes Redis and runs without Postgres: a kill
switch must not wait for a database. All workers do the same; versions make that harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import Final

import structlog

from agents.config import WorkerConfig
from agents.fatal import exit_fatally
from agents.health.metrics import WorkerCounts
from sinks.redis.commands import CommandPublisher, IsWhole, redis_hash
from sinks.redis.publish_markers import PublishMarkers
from topics.commands.log import CommandFollower, is_whole
from topics.commands.messages import CommandState, CommandTarget
from topics.kafka.admin import TopicsMissing

log = structlog.get_logger()

INTERVAL_S: Final = 1.0
"""How soon a Redis that forgot is noticed, what waits is tried again, and what expired goes."""
RETRY_S: Final = 5.0
KEPT: Final = {
    "meaning": "no command set it; it stays, because it restricts what executors do",
    "remedy": "set it by `headstart config set`, or set it and then unset it",
}


async def sync_commands(config: WorkerConfig, counts: WorkerCounts) -> None:
    """Serve what is set, for as long as the worker runs; an error ends the process."""
    keeper = CommandSync(config.redis, config.instance, config.check_redis_s, counts)
    said = ""
    try:
        while True:
            try:
                await keeper.follow(config.kafka)
            except (ConnectionError, TopicsMissing) as error:
                if said != str(error):  # once: it may be long
                    log.warning("commands.wait", reason=str(error), retry_s=RETRY_S)
                said = str(error)
                await asyncio.sleep(RETRY_S)
    except Exception as error:
        exit_fatally("commands", error)
    finally:
        await keeper.close()


class CommandSync:
    """What is set, on its way to Redis. A Redis that is away stops nothing: places wait."""

    def __init__(
        self,
        redis_url: str,
        instance: str,
        check_s: float = 60.0,
        counts: WorkerCounts | None = None,
    ) -> None:
        """`check_s`: how often all that Redis serves is looked at; 0: never."""
        self._publisher = CommandPublisher(redis_url)
        self._published = PublishMarkers(redis_url)
        # Of its own: what another worker published may be less than this one has read.
        self._name = f"commands {instance}"
        self._waiting: set[CommandTarget] = set()
        self._away = False
        self._looked = 0
        self._check_ms, self._checked = int(check_s * 1000), 0
        """The interval, and when all was last looked at, Unix ms."""
        self._counts = counts or WorkerCounts()
        self._kept: dict[CommandTarget, tuple[str, ...]] = {}

    async def close(self) -> None:
        """Close the connections."""
        await self._publisher.close()
        await self._published.close()

    async def follow(self, kafka: str) -> None:
        """Follow the log until the broker refuses. Raises as `CommandFollower.changes` does."""
        follower = CommandFollower(kafka)
        changes = follower.changes(_say_refused, int(INTERVAL_S * 1000))
        async with contextlib.aclosing(changes):
            async for changed in changes:
                whole = partial(is_whole, kafka, follower.state)
                await self.keep(follower.state, changed, time.time_ns() // 1_000_000, whole)

    async def keep(
        self,
        state: CommandState,
        changed: set[CommandTarget],
        now: int,
        whole: IsWhole | None = None,
    ) -> None:
        """Serve what changed, what expired and what waited; everything where Redis forgot.

        `whole`: see `CommandPublisher.serve_all`.
        """
        self._waiting |= changed | state.expired(self._looked, now)
        self._looked = now
        try:
            run, unpublished = await self._published.unpublished([self._name])
            if unpublished or not await self._publisher.has_all_modes(run):
                mark = await self._published.begin(self._name)
                changes = await self._publisher.serve_all(state, now, whole)
                await self._published.remember(self._name, run, mark)
                if unpublished or changes:  # not each second while a broker is away
                    log.info("commands.published.again", places=len(state.targets), changed=changes)
                self._checked = now
            else:
                await self._publisher.serve(state, self._waiting, now)
                await self._check(state, now, whole)
            self._say_kept()
        except ConnectionError as error:
            if not self._away:
                log.warning("commands.redis.away", error=str(error))
            self._away = True
            return
        self._waiting, self._away = set(), False

    async def _check(self, state: CommandState, now: int, whole: IsWhole | None) -> None:
        """Look at all that Redis serves, where that is due: something else may have changed it."""
        if not self._check_ms or now - self._checked < self._check_ms:
            return
        self._checked = now
        if changes := await self._publisher.serve_all(state, now, whole):
            log.warning("commands.redis.repaired", places=changes)
            self._counts.repaired["command"] += changes

    def _say_kept(self) -> None:
        """Say what no command set and that stays, when that changes."""
        kept = dict(self._publisher.kept)
        if kept != self._kept:
            for place, what in kept.items():
                if self._kept.get(place) != what:
                    log.warning("commands.redis.kept", place=redis_hash(place), what=what, **KEPT)
            self._kept = kept
        self._counts.kept = sum(map(len, kept.values()))


def _say_refused(offset: int, reason: str) -> None:
    log.warning("commands.refused", offset=offset, reason=reason)
