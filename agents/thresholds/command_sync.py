"""Writes overrides and modes to Redis, and checks and repairs them there at an interval.

Every threshold worker follows the log of commands.

It runs in the threshold worker, which writes Redis and needs no Postgres: a kill switch must not
wait for a database. All workers write the same; versions make that harmless.
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
from sinks.redis.commands import CommandPublisher, IsWhole
from sinks.redis.publish_markers import PublishMarkers
from topics.commands.log import CommandFollower, is_whole
from topics.commands.messages import CommandState, CommandTarget
from topics.kafka.admin import TopicsMissing

log = structlog.get_logger()

INTERVAL_S: Final = 1.0
"""How soon a Redis that lost data is noticed, writes are retried, and expired settings removed."""
RETRY_S: Final = 5.0
KEPT: Final = {
    "meaning": "no command set it; it is kept because it restricts executors",
    "remedy": "set it by `headstart config set`, or set it and then unset it",
}


async def sync_commands(config: WorkerConfig, counts: WorkerCounts) -> None:
    """Serve overrides and modes while the worker runs; an error ends the process."""
    sync = CommandSync(config.redis, config.instance, config.check_redis_s, counts)
    logged = ""
    try:
        while True:
            try:
                await sync.follow(config.kafka)
            except (ConnectionError, TopicsMissing) as error:
                if logged != str(error):  # once: it may last long
                    log.warning("commands.retrying", reason=str(error), retry_s=RETRY_S)
                logged = str(error)
                await asyncio.sleep(RETRY_S)
    except Exception as error:
        exit_fatally("commands", error)
    finally:
        await sync.close()


class CommandSync:
    """Writes overrides and modes to Redis; while it is away, changed places wait."""

    def __init__(
        self,
        redis_url: str,
        instance: str,
        check_s: float = 60.0,
        counts: WorkerCounts | None = None,
    ) -> None:
        """`check_s`: seconds between two checks of everything that Redis serves; 0: never."""
        self._publisher = CommandPublisher(redis_url)
        self._published = PublishMarkers(redis_url)
        # One per worker: another worker may have published less of the log than this one has read.
        self._name = f"commands {instance}"
        self._waiting: set[CommandTarget] = set()
        self._away = False
        self._expired_at = 0
        self._check_ms, self._checked = int(check_s * 1000), 0
        """The interval, and the time of the last check, Unix ms."""
        self._counts = counts or WorkerCounts()
        self._kept: dict[CommandTarget, tuple[str, ...]] = {}

    async def close(self) -> None:
        """Close the connections."""
        await self._publisher.close()
        await self._published.close()

    async def follow(self, kafka: str) -> None:
        """Follow the log until the broker refuses. Raises as `CommandFollower.changes` does."""
        follower = CommandFollower(kafka)
        changes = follower.changes(_log_rejected, int(INTERVAL_S * 1000))
        async with contextlib.aclosing(changes):
            async for changed in changes:
                whole = partial(is_whole, kafka, follower.state)
                await self.serve(follower.state, changed, time.time_ns() // 1_000_000, whole)

    async def serve(
        self,
        state: CommandState,
        changed: set[CommandTarget],
        now: int,
        whole: IsWhole | None = None,
    ) -> None:
        """Serve what changed, expired or waits; everything if Redis has lost data.

        `whole`: see `CommandPublisher.serve_all`.
        """
        self._waiting |= changed | state.expired(self._expired_at, now)
        self._expired_at = now
        try:
            run, unpublished = await self._published.unpublished([self._name])
            if unpublished or not await self._publisher.has_all_modes(run):
                mark = await self._published.begin(self._name)
                changes = await self._publisher.serve_all(state, now, whole)
                await self._published.remember(self._name, run, mark)
                if unpublished or changes:  # not each second while a broker is away
                    log.info("commands.republished", places=len(state.targets), changed=changes)
                self._checked = now
            else:
                await self._publisher.serve(state, self._waiting, now)
                await self._check(state, now, whole)
            self._log_kept()
        except ConnectionError as error:
            if not self._away:
                log.warning("commands.redis_unavailable", error=str(error))
            self._away = True
            return
        self._waiting, self._away = set(), False

    async def _check(self, state: CommandState, now: int, whole: IsWhole | None) -> None:
        """Check everything that Redis serves, if due: something else may have changed it."""
        if not self._check_ms or now - self._checked < self._check_ms:
            return
        self._checked = now
        if changes := await self._publisher.serve_all(state, now, whole):
            log.warning("commands.redis_repaired", places=changes)
            self._counts.repaired["command"] += changes

    def _log_kept(self) -> None:
        """Log settings in Redis that no command set and that are kept, when they change."""
        kept = dict(self._publisher.kept)
        if kept != self._kept:
            for place, what in kept.items():
                if self._kept.get(place) != what:
                    key = self._publisher.hash_of(place)
                    log.warning("commands.unknown_setting_kept", place=key, what=what, **KEPT)
            self._kept = kept
        self._counts.kept = sum(map(len, kept.values()))


def _log_rejected(offset: int, reason: str) -> None:
    log.warning("commands.rejected", offset=offset, reason=reason)
