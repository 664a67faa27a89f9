"""Takes snapshots of a whole system; of a service that does not answer it has the reason."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from psycopg import AsyncConnection

from console.inspection.error_text import SILENT, short_error, unreachable_why
from console.inspection.lag import GroupLag, Log, LogState, SinkProgress, ask_stored, lags
from console.inspection.learned import LearnedSummary, ask_learned, ask_moves
from console.inspection.services import AskedPostgres, ServiceAnswer, ask_redis
from console.inspection.target import InspectionTarget
from console.inspection.workers import Worker, ask_workers, find_workers
from headstart.kafka_producer import BrokerUnreachable
from headstart.scrubbing.masking import masked_address
from memory.store.outbox import OutboxLag, outbox_lag
from processing.worker_report import MEMORY, WORKERS
from sinks.postgres.reading import reporting_schema_errors
from sinks.postgres.rights import require_rights_to_store
from topics.catalogue import group_of

ANSWER_S: Final = 8.0
"""Timeout of a service's answer."""
MEMORY_GROUP: Final = group_of(MEMORY)
"""Under this name the lag of the memory is shown among the groups; its worker is in none."""
_REST: Final = 10
"""Reading all values from Redis takes at most one part in this many of the time."""

T = TypeVar("T")


@dataclass(frozen=True)
class SystemSnapshot:
    """The system's state at a time, in Unix seconds; None for parts that did not answer."""

    at: float
    services: tuple[ServiceAnswer, ...]
    workers: tuple[Worker, ...]
    log: LogState | None = None
    stored: SinkProgress | None = None
    learned: LearnedSummary | None = None
    moves: Mapping[tuple[str, str], list[float]] = field(default_factory=dict)
    """Past thresholds, oldest first, of contexts (tenant, path) that are newly leading."""
    memory: OutboxLag | None = None
    """What waits for the memory worker; None: unknown, or the memory is switched off."""

    @property
    def answered(self) -> bool:
        """Whether every service answered."""
        return all(each.ok for each in self.services)

    @property
    def groups(self) -> list[GroupLag]:
        """The lag of each group, as far as it is known; else as its workers reported it."""
        if not self.log:
            return []
        found = lags(self.log, self.stored)
        if self.memory is not None:
            found.append(GroupLag(MEMORY_GROUP, "episode_outbox", {0: self.memory.rows}))
        return found + reported_lags(self.workers, {each.group for each in found})

    @property
    def lag(self) -> int:
        """Waiting records of all groups."""
        return sum(group.total for group in self.groups)


def reported_lags(workers: Iterable[Worker], known: Set[str]) -> list[GroupLag]:
    """Return the lags that workers reported whose group is not in `known`. Pure.

    The groups of the workers that each system has are read from the broker and Postgres.
    """
    found = dict[str, dict[int, int]]()
    for each in workers:
        group = group_of(each.name)
        if each.report is not None and each.name not in WORKERS and group not in known:
            found.setdefault(group, {}).update(each.report.lag)
    return [GroupLag(group, "as reported", lag) for group, lag in found.items()]


class SystemObserver:
    """Takes snapshots repeatedly, of one tenant's contexts or all."""

    def __init__(
        self, target: InspectionTarget, *, tenant: str | None = None, contexts: bool = True
    ) -> None:
        """`contexts`: whether to read the values that Redis serves."""
        self._target, self._tenant, self._contexts = target, tenant, contexts
        self._log = Log(target.kafka, target.spans_topic)
        self._learned: LearnedSummary | None = None
        self._learn_at = 0.0
        self._known: set[tuple[str, str]] = set()

    async def take(self) -> SystemSnapshot:
        """Take a snapshot, within seconds. A service that does not answer raises nothing."""
        async with AskedPostgres(self._target.postgres) as asked:
            return await self._take(asked)

    async def _take(self, asked: AskedPostgres) -> SystemSnapshot:
        postgres, redis, (log, kafka_error), workers = await asyncio.gather(
            _bounded(asked.answer(), "postgres", self._target.postgres),
            _bounded(ask_redis(self._target), "redis", self._target.redis),
            _tried(self._log.ask, self._target.kafka),
            asyncio.to_thread(self._workers),
        )
        kafka = ServiceAnswer("kafka", self._target.kafka, error=kafka_error)
        stored = learned = memory = None
        if postgres.ok:
            connection = await asked.connection()
            epoch = log.epoch if log else None
            stored, error = await _tried(lambda: _stored(connection, asked.dsn, epoch))
            if error is None and self._target.memory:
                memory, _ = await _tried(lambda: outbox_lag(connection))
            if error is None:
                _, error = await _tried(lambda: require_rights_to_store(connection, asked.dsn))
            postgres = _also(postgres, error)
        if redis.ok and self._contexts:
            learned, error = await _tried(self._learn)
            redis = _also(redis, error)
        moves = await self._moves(connection, learned) if learned and postgres.ok else {}
        services = (kafka, postgres, redis)
        return SystemSnapshot(
            time.time(), services, tuple(workers), log, stored, learned, moves, memory
        )

    def _workers(self) -> list[Worker]:
        found = find_workers(self._target.data, configured=self._target.optional_workers)
        if self._target.health and not found:
            found = ask_workers(self._target.health)
        return found

    async def _moves(
        self, connection: AsyncConnection[Any], learned: LearnedSummary
    ) -> dict[tuple[str, str], list[float]]:
        new = {(each.tenant, each.path) for each in learned.leading} - self._known
        found, _error = await _tried(lambda: ask_moves(connection, new))
        self._known |= found.keys() if found else set()
        return found or {}

    async def _learn(self) -> LearnedSummary:
        began = time.monotonic()
        if self._learned is None or began >= self._learn_at:
            self._learned = await ask_learned(self._target.redis, self._tenant)
            took = time.monotonic() - began
            self._learn_at = time.monotonic() + took * _REST
        return self._learned


async def _stored(connection: AsyncConnection[Any], dsn: str, epoch: int | None) -> SinkProgress:
    with reporting_schema_errors(dsn):
        return await ask_stored(connection, epoch)


async def _tried(ask: Callable[[], Awaitable[T]], kafka: str = "") -> tuple[T | None, str | None]:
    """Return an answer, or why there is none."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await ask(), None
    except BrokerUnreachable as error:
        return None, await unreachable_why(kafka) or short_error(error)
    except Exception as error:  # clients raise many types; the snapshot shows it
        return None, short_error(error)


async def _bounded(asking: Awaitable[ServiceAnswer], service: str, address: str) -> ServiceAnswer:
    try:
        async with asyncio.timeout(ANSWER_S):
            return await asking
    except TimeoutError:
        return ServiceAnswer(service, masked_address(address), error=SILENT)


def _also(answer: ServiceAnswer, error: str | None) -> ServiceAnswer:
    if error is None:
        return answer
    return ServiceAnswer(answer.service, answer.address, answer.version, error, answer.took_ms)
