"""Redis and Postgres as models, and the clients through which the real runtimes use them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import psycopg

from sinks.postgres.episodes import encode_events, touched_runs
from sinks.postgres.progress import require_known
from sinks.redis.last_owners import PartitionOwner
from sinks.redis.thresholds import encode_value
from tests.simulation.host_clocks import redis_ms
from tests.simulation.process import Process
from topics.schema.json_schema import PublishedThreshold

UNSTORABLE = "unstorable"
"""The tool id of an event that the contract takes and Postgres refuses."""

Version = tuple[int, int]


class Redis:
    """What executors read: only newer versions are taken, as `publish.lua` does."""

    def __init__(self) -> None:
        self.run = b"run-0"
        self.down = False
        self.values: dict[tuple[str, str], tuple[Version, bytes]] = {}
        self.published: dict[int, bytes] = {}
        self.owners: dict[int, PartitionOwner] = {}
        self.went_back: list[str] = []
        self.tampered: set[tuple[tuple[str, str], bytes]] = set()
        """What something else has written, by (tenant, path)."""
        self._snapshot: tuple[Any, Any, Any] = ({}, {}, {})
        self._runs = 0

    def newer(self, known: Version, offered: Version) -> bool:
        return offered > known

    def write(self, thresholds: Sequence[PublishedThreshold]) -> None:
        for threshold in thresholds:
            place, version = (threshold.tenant, threshold.path), version_of(threshold)
            known = self.values.get(place)
            if known is not None and not self.newer(known[0], version):
                continue
            if known is not None and version < known[0]:
                self.went_back.append(f"{place} from {known[0]} to {version}")
            self.values[place] = (version, encode_value(threshold))

    def bury(self, gone: PublishedThreshold) -> None:
        place, marker = (gone.tenant, gone.path), (version_of(gone), encode_value(gone))
        if self.values.get(place) == marker:
            del self.values[place]

    def empty(self) -> None:
        """FLUSHALL: the server stays the same."""
        self.values, self.published, self.owners = {}, {}, {}

    def snapshot(self) -> None:
        self._snapshot = (dict(self.values), dict(self.published), dict(self.owners))

    def restart(self) -> None:
        """Come back with the last snapshot, as another run."""
        self._runs += 1
        self.run = b"run-%d" % self._runs
        values, published, owners = self._snapshot
        self.values, self.published, self.owners = dict(values), dict(published), dict(owners)

    def note(self, owners: Mapping[int, PartitionOwner]) -> None:
        """As `note_owners.lua` does."""
        for partition, given in owners.items():
            known = self.owners.get(partition)
            same = known is not None and given.version == known.version
            if (
                known is None
                or given.version > known.version
                or (same and (given.open or given.worker == known.worker))
            ):
                self.owners[partition] = given


def version_of(threshold: PublishedThreshold) -> Version:
    return threshold.epoch, threshold.offset


class RedisAway(ConnectionError):
    """What the publisher raises."""


class Publisher:
    """Stands in for `sinks.redis.thresholds.ThresholdPublisher`; each call may fail alone."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def publish(self, batch: Iterable[PublishedThreshold]) -> None:
        calls: dict[tuple[str, str], list[PublishedThreshold]] = {}
        for threshold in batch:
            calls.setdefault((threshold.tenant, threshold.workflow_type), []).append(threshold)
        for thresholds in calls.values():
            await redis_call(self._process, "redis.publish", lambda r, t=thresholds: r.write(t))

    async def delete_expired(self, gone: Iterable[PublishedThreshold]) -> None:
        for each in list(gone):
            await redis_call(self._process, "redis.bury", lambda r, t=each: r.bury(t))

    async def close(self) -> None:
        """Nothing to close."""


class Published:
    """Stands in for `sinks.redis.publish_markers.PublishMarkers`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def unpublished(self, partitions: Sequence[int]) -> tuple[bytes, list[int]]:
        run = await redis_call(self._process, "redis.run", lambda redis: redis.run)
        held = await redis_call(
            self._process, "redis.published", lambda redis: dict(redis.published)
        )
        return run, [each for each in partitions if held.get(each) != run]

    async def now_ms(self) -> int:
        process = self._process
        now: int = await redis_call(
            process, "redis.time", lambda _redis: redis_ms(process.world, process.name)
        )
        return now

    async def begin(self, partition: int) -> bytes:
        self._process.world.marks += 1
        mark = b"begun %d" % self._process.world.marks

        def write(redis: Redis) -> bytes:
            redis.published[partition] = mark
            return mark

        begun: bytes = await redis_call(self._process, "redis.begin", write)
        return begun

    async def remember(self, partition: int, run: bytes, mark: bytes) -> None:
        def write(redis: Redis) -> None:
            if redis.published.get(partition) == mark:
                redis.published[partition] = run

        await redis_call(self._process, "redis.remember", write)

    async def close(self) -> None:
        """Nothing to close."""


class Owners:
    """Stands in for `sinks.redis.last_owners.LastOwners`.

    Its calls travel only in worlds in which the log is recreated for several workers. In others
    nothing depends on them, and their schedules stay as they are.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._travels = process.world.schedule.recreating

    async def read(self) -> dict[int, PartitionOwner]:
        found: dict[int, PartitionOwner] = await self._call(
            "redis.owners", lambda redis: dict(redis.owners)
        )
        return found

    async def note(self, owners: Mapping[int, PartitionOwner]) -> None:
        if owners:
            await self._call("redis.note", lambda redis: redis.note(owners))

    async def _call(self, port: str, effect: Callable[[Redis], Any]) -> Any:
        if self._travels:
            return await redis_call(self._process, port, effect)
        return effect(self._process.world.redis)

    async def close(self) -> None:
        """Nothing to close."""


async def redis_call(process: Process, port: str, effect: Callable[[Redis], Any]) -> Any:
    def reach() -> Any:
        if process.world.redis.down:
            raise RedisAway("redis is down")
        return effect(process.world.redis)

    return await process.call(port, reach, RedisAway)


class Postgres:
    """The table of episodes, and how far the sink has come."""

    def __init__(self, replicated: bool = False) -> None:
        """`replicated`: whether a replica takes over in a failover."""
        self.down = False
        self.connection = 0
        """Connections opened under an earlier number are broken."""
        self.rows: dict[tuple[str, str, str], int] = {}
        """How often each (timestamp, tenant, id) is stored."""
        self.offsets: dict[tuple[int, int], int] = {}
        """Next offset by (epoch, partition)."""
        self._replicated = replicated
        self._transactions: list[tuple[dict[Any, int], dict[Any, int]]] = [({}, {})]
        """Rows and offsets after each transaction."""

    def insert(self, key: tuple[str, str, str]) -> None:
        """Insert on conflict do nothing."""
        self.rows.setdefault(key, 1)

    def advance(self, epoch: int, offsets: Mapping[int, int]) -> None:
        for partition, end in offsets.items():
            place = (epoch, partition)
            self.offsets[place] = max(end, self.offsets.get(place, 0))
        if self._replicated:
            self._transactions.append((dict(self.rows), dict(self.offsets)))

    def stored(self, epoch: int) -> dict[int, int]:
        """Return the next offset by partition."""
        return {p: end for (number, p), end in self.offsets.items() if number == epoch}

    def fail_over(self, lacks: int) -> None:
        """Go on as a replica that lacks the last transactions."""
        self.connection += 1
        del self._transactions[max(1, len(self._transactions) - lacks) :]
        self.rows, self.offsets = map(dict, self._transactions[-1])


class Sink:
    """Stands in for `sinks.postgres.episodes.EpisodeSink`: one transaction per batch."""

    encode = staticmethod(encode_events)
    touched = staticmethod(touched_runs)

    def __init__(self, process: Process, connection: int) -> None:
        self._process, self._connection = process, connection
        self._known: Mapping[int, int] = {}

    @classmethod
    async def open(cls, process: Process) -> Self:
        def connect() -> int:
            postgres = process.world.postgres
            if postgres.down:
                raise psycopg.OperationalError("connection refused")
            return postgres.connection

        return cls(process, await process.call("postgres.open", connect, psycopg.OperationalError))

    async def close(self) -> None:
        """Closing a broken connection is fine too."""

    async def next_offsets(self, topic: str, epoch: int) -> dict[int, int]:
        found: dict[int, int] = await self._run("postgres.offsets", lambda p: p.stored(epoch))
        return found

    async def store(
        self,
        lines: Sequence[bytes],
        offsets: Mapping[int, int],
        *,
        topic: str,
        epoch: int,
        on_refused: Callable[[Sequence[tuple[int, str]]], Awaitable[None]],
        hooks: object = None,
        touched: object = None,
        known: Mapping[int, int] = MappingProxyType({}),
    ) -> int:
        # The hooks are for purges, which no schedule has, and ask Postgres about them.
        await self._run("postgres.copy", lambda _postgres: None)
        parts = [line.split(b"\t") for line in lines]
        bad = [n for n, part in enumerate(parts) if part[10] == UNSTORABLE.encode()]
        if bad:
            await on_refused([(number, "postgres will not have it") for number in bad])
        good = [
            (part[9].decode(), part[1].decode(), part[0].decode())
            for number, part in enumerate(parts)
            if number not in bad
        ]
        self._known = {partition: at for partition, at in known.items() if partition in offsets}
        await self._commit(good, epoch, offsets)
        return len(good)

    async def _commit(
        self, keys: Sequence[tuple[str, str, str]], epoch: int, offsets: Mapping[int, int]
    ) -> None:
        def commit(postgres: Postgres) -> None:
            require_known(postgres.stored(epoch), self._known)
            for key in keys:
                postgres.insert(key)
            postgres.advance(epoch, offsets)

        await self._run("postgres.commit", commit)

    async def _run(self, port: str, effect: Callable[[Postgres], Any]) -> Any:
        def reach() -> Any:
            postgres = self._process.world.postgres
            if postgres.down or postgres.connection != self._connection:
                raise psycopg.OperationalError("the connection is broken")
            return effect(postgres)

        return await self._process.call(port, reach, psycopg.OperationalError)
