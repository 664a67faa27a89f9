"""Publishes overrides and modes to Redis, where executors read them: only newer versions.

Writes are idempotent and a late writer does no harm. So both the CLI command that sets something
and every threshold worker publish it, the latter also after Redis lost data.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self
from urllib.parse import unquote

import orjson

from headstart.keys import modes_key, redis_key, slot_mate
from headstart.thresholds.overrides import OVERRIDES_FIELD, UNREACHABLE, read_overrides
from sinks.connections import connect_redis, redis_client, reporting_redis_errors
from sinks.redis.command_authors import changed_commands, with_authors, write_commands
from sinks.redis.lua import script
from sinks.redis.masters import by_slot, is_cluster, modes_patterns, scan_batches, scan_keys
from sinks.redis.modes_marker import ModesMarker, without_marker
from sinks.redis.restrictions import Merged, StoredRestriction, merged, version_in
from topics.commands.log import PreviousCommands
from topics.commands.messages import (
    Begin,
    Command,
    CommandState,
    CommandTarget,
    Version,
    command_key,
    decode_command,
    in_force,
    target_of,
)

_SCRIPT: Final = script("serve")
_VERSION: Final = "headstart:version:"
_SERVED: Final = "headstart:served:"
_AT_ONCE: Final = 100
"""Targets read in one request."""
_ATTEMPTS: Final = 5
"""Attempts on a target that other processes are writing to."""
_NO_BRACES: Final = "name tenants and workflow types without }, or use one server"
IsWhole = Callable[[], Awaitable[bool]]
"""Returns whether a `CommandState` is that of the whole log by now."""


def _target_of(key: str) -> CommandTarget | None:
    """Return the target that a hash serves; None for any other key."""
    match [unquote(part) for part in key.split(":")]:
        case ["headstart", "thresholds", tenant, workflow_type]:
            return CommandTarget("threshold", tenant, workflow_type)
        case ["headstart", "modes", *owner] | ["{headstart", "modes}", *owner] if len(owner) <= 1:
            return CommandTarget("mode", *(owner or [""]))
    return None


def version_key(key: str) -> str:
    """Return the key that holds the version of a hash, in the same cluster slot."""
    return slot_mate(_VERSION, key)


def _served_key(key: str) -> str:
    """Return the key that holds what Headstart wrote to a hash, to detect manual changes."""
    return slot_mate(_SERVED, key)


class NewerInRedis(NamedTuple):
    """Why a target is not published: Redis has a newer version of it, or cannot have it."""

    what: str
    remedy: str

    @classmethod
    def of(cls, key: str, known: Version, stored: bytes | None) -> NewerInRedis:
        """`key`: of the hash; `known`: the version in the log; `stored`: that in Redis."""
        there = (stored or b"").decode()
        return cls(
            f"{key} in Redis has version {there} (number of the log of commands, "
            f"offset), and headstart.commands only {known.number} {known.offset}: Redis is left "
            "unchanged",
            "check that the addresses of Kafka and Redis are of one installation; if they are, the "
            f"log has lost records: `redis-cli DEL '{version_key(key)}'`, then `headstart "
            "thresholds republish`",
        )

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}"


class CommandPublisher:
    """Publishes the targets of a `CommandState`. Connects on first use."""

    def __init__(self, redis_url: str, *, timeout_s: float = 2.0) -> None:
        self._url = redis_url
        self._redis: Any = connect_redis(redis_url, timeout_s)
        self._clustered = is_cluster(self._redis)
        self._marker = ModesMarker(self._redis)
        self.kept: dict[CommandTarget, tuple[str, ...]] = {}
        """Restrictions set by hand in Redis that are kept, by target."""
        self.newer: dict[CommandTarget, NewerInRedis] = {}
        """Targets that differ but were left unchanged: Redis has a newer version."""

    def hash_of(self, place: CommandTarget) -> str:
        """Return the key of the hash that serves a target."""
        if place.kind == "mode":
            return modes_key(place.tenant or None, clustered=self._clustered)
        return redis_key(place.tenant, place.workflow_type)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def serve(self, state: CommandState, places: Iterable[CommandTarget], now: int) -> int:
        """Publish the state of `places` at `now` (Unix ms); return how many changed.

        Restrictions set by hand in Redis are kept, and listed in `kept`. Raises `RedisUnreachable`;
        some targets may be published then, and repeating the call is harmless.
        """
        return (await self._serve(state, places, now))[0]

    async def _serve(
        self, state: CommandState, places: Iterable[CommandTarget], now: int
    ) -> tuple[int, list[CommandTarget]]:
        """Publish as `serve` does; also return the targets that others kept changing."""
        changed, todo = 0, list(places)
        with reporting_redis_errors(self._url):
            for _attempt in range(_ATTEMPTS):
                again = []
                for at in range(0, len(todo), _AT_ONCE):
                    some = todo[at : at + _AT_ONCE]
                    for place, stored in zip(some, await self._read(some), strict=True):
                        result = await self._one(state, place, stored, now)
                        changed += result == 1
                        if result < 0:
                            again.append(place)
                if not (todo := again):
                    break
        return changed, todo

    async def has_all_modes(self, run: bytes | None = None) -> bool:
        """Return whether the marker is set that Redis has all modes.

        `run`: the server's run id, if known. Raises `RedisUnreachable`.
        """
        with reporting_redis_errors(self._url):
            return await self._marker.is_set(run)

    async def serve_all(
        self, state: CommandState, now: int, is_whole: IsWhole | None = None
    ) -> int:
        """Publish every target, and remove those that only an older snapshot of Redis has.

        Then sets the marker that Redis has all modes, and stores the commands in force with their
        authors (`sinks.redis.command_authors`). Both are skipped if others kept changing a target,
        so that it is still unpublished, or if `is_whole` (None: known to be) returns that the log
        has commands that `state` lacks: Redis may have lost them. Returns how many targets changed.
        Raises as `serve` does.
        """
        self.kept.clear()
        self.newer.clear()
        with reporting_redis_errors(self._url):
            token = await self._marker.begin()
            changed, left = await self._serve(state, state.targets, now)
            async for found in self._places():
                more, again = await self._serve(state, found.difference(state.targets), now)
                changed, left = changed + more, left + again
            if not left:
                await self._finish(state, now, token, is_whole)
        return changed

    async def _finish(
        self, state: CommandState, now: int, token: bytes | None, is_whole: IsWhole | None
    ) -> None:
        """Set the marker and store the commands in force, if `state` is the whole log.

        A command that is set after `is_whole` returned is not lost: what is stored was read before,
        so the write that would undo it changes nothing.
        """
        commands = [
            each
            for each in state.commands
            if in_force(each, now) and target_of(command_key(each)) not in self.newer
        ]
        changes = await changed_commands(self._redis, commands, {*self.kept, *self.newer})
        if token is None and not changes:
            return
        if is_whole is None or await is_whole():
            if token is not None:
                await self._marker.finish(token)
            await write_commands(self._redis, changes)

    async def not_served(self, state: CommandState, place: CommandTarget, now: int) -> str | None:
        """Return why Redis serves a target differently from `state`; None if it does not.

        Raises `RedisUnreachable`.
        """
        with reporting_redis_errors(self._url):
            (stored,) = await self._read([place])
        if newer := self.newer.get(place):
            return str(newer)
        if not merged(state, place, stored, now).changes:
            return None
        return f"other processes keep changing {self.hash_of(place)}: run the command again"

    async def look(self, state: CommandState, now: int) -> list[tuple[CommandTarget, Merged]]:
        """Return every target that Redis serves differently from `state`; writes nothing.

        Raises `RedisUnreachable`.
        """
        places = set(state.targets)
        with reporting_redis_errors(self._url):
            async for found in self._places():
                places |= found
            every, read = sorted(places), list[StoredRestriction]()
            for at in range(0, len(every), _AT_ONCE):
                read += await self._read(every[at : at + _AT_ONCE])
        found_there = []
        for place, stored in zip(every, read, strict=True):
            merge = merged(state, place, stored, now)
            self._is_newer(state.version(place), place, stored, merge)
            if merge.changes or merge.kept:
                found_there.append((place, merge))
        return found_there

    async def _places(self) -> AsyncIterator[set[CommandTarget]]:
        """Yield the targets that Redis serves, in batches."""
        for pattern in (f"{_VERSION}*", *modes_patterns(self._redis)):
            keys = [key async for key in scan_keys(self._redis, pattern)]
            yield {place for key in keys if (place := _target_of(_hash_of(key)))}
        async for keys in scan_batches(self._redis, "headstart:thresholds:*"):
            async with self._redis.pipeline(transaction=False) as pipeline:
                for key in keys:
                    pipeline.hexists(key, OVERRIDES_FIELD)
                there = await pipeline.execute(raise_on_error=False)
            yield {
                place
                for key, has in zip(keys, there, strict=True)
                if has == 1 and (place := _target_of(key.decode(errors="replace")))
            }
            await asyncio.sleep(0.01)  # so that a Redis with many hashes can serve others

    async def _read(self, places: Sequence[CommandTarget]) -> list[StoredRestriction]:
        """Return what Redis stores for targets."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for place in places:
                key = self.hash_of(place)
                pipeline.get(version_key(key)).get(_served_key(key))
                if place.kind == "mode":
                    pipeline.hgetall(key)
                else:
                    pipeline.hget(key, OVERRIDES_FIELD)
            read = await pipeline.execute(raise_on_error=False)
        return [_stored(*read[at : at + 3]) for at in range(0, len(read), 3)]

    def _is_newer(
        self, version: Version, place: CommandTarget, stored: StoredRestriction, merge: Merged
    ) -> bool:
        """Return whether Redis has a newer version; record it in `newer` if it also differs."""
        self.newer.pop(place, None)
        if version >= version_in(stored.version):
            return False
        if merge.changes or merge.kept:
            self.newer[place] = NewerInRedis.of(self.hash_of(place), version, stored.version)
        return True

    async def _one(
        self, state: CommandState, place: CommandTarget, stored: StoredRestriction, now: int
    ) -> int:
        """Publish one target; return 1 if it changed, 0 if not, -1 to try again."""
        key, version = self.hash_of(place), state.version(place)
        merge = merged(state, place, stored, now)
        if self._is_newer(version, place, stored, merge):
            return 0
        keys = (key, version_key(key), _served_key(key))
        if self._clustered and len(by_slot(keys)) > 1:
            self.newer[place] = NewerInRedis(f"Redis Cluster cannot serve {key}", _NO_BRACES)
            return 0
        if merge.kept:
            self.kept[place] = merge.kept
        else:
            self.kept.pop(place, None)
        now_there = stored.version == b"%d %d" % version and stored.served == merge.served
        if not merge.changes and now_there:
            return 0
        fields = [
            part
            for field, value in merge.changes.items()
            for part in (field, _marked(stored.fields.get(field)), _marked(value))
        ]
        result: int = await self._redis.eval(
            _SCRIPT, 3, *keys,
            f"{version.number} {version.offset}", stored.version or b"", merge.served,
            merge.channel or key, merge.announcement, *fields,
        )  # fmt: skip
        return result


def _marked(value: bytes | None) -> bytes:
    return b"-" if value is None else b"=" + value


def _stored(version: Any, served: Any, fields: Any) -> StoredRestriction:
    """Return what Redis stores for a target; the arguments may be errors of the pipeline."""
    for each in (version, served, fields):
        if isinstance(each, Exception) and not str(each).startswith("WRONGTYPE"):
            raise each
    other_type = isinstance(fields, Exception)
    if other_type or fields is None:
        fields = {}
    elif isinstance(fields, bytes):
        fields = {OVERRIDES_FIELD.encode(): fields}
    texts = [each if isinstance(each, bytes) else None for each in (version, served)]
    return StoredRestriction(texts[0], texts[1], fields, other_type)


def _hash_of(key: bytes) -> str:
    """Return the key of the hash that `key` is, or holds the version of."""
    text = key.decode(errors="replace")
    if not text.startswith(_VERSION):
        return text
    of_key = text.removeprefix(_VERSION)
    return of_key[1:-1] if of_key.endswith("}") else of_key


def commands_in_redis(redis_url: str, now: int) -> Callable[[], Awaitable[PreviousCommands]]:
    """Return a function that reads the commands that Redis serves, to restore them in a new log.

    Author, reason and time are taken from `sinks.redis.command_authors` if known. It raises
    `RedisUnreachable`.
    """

    async def read() -> PreviousCommands:
        async with redis_client(redis_url) as client:
            commands = await with_authors(client, [each async for each in _served(client, now)])
            keys = scan_keys(client, f"{_VERSION}*", "string")
            numbers = [version_in(await client.get(key))[0] async for key in keys]
        return PreviousCommands(commands, max(numbers, default=0))

    return read


async def _served(client: Any, now: int) -> AsyncIterator[Command]:
    found: list[dict[str, Any]] = []
    for pattern in ("headstart:thresholds:*", *modes_patterns(client)):
        async for key in scan_keys(client, pattern, "hash"):
            place = _target_of(key.decode())
            if place is not None and place.kind == "threshold":
                found += _override_fields(place, await client.hget(key, OVERRIDES_FIELD))
            elif place is not None:
                found += _mode_fields(place, await client.hgetall(key))
    for each in found:
        try:
            command = decode_command(orjson.dumps({**each, "at": now}))
        except ValueError:
            continue  # not written by Headstart
        if not isinstance(command, Begin) and in_force(command, now):
            yield command


def _override_fields(place: CommandTarget, raw: bytes | None) -> list[dict[str, Any]]:
    where = {"set": "threshold", "tenant": place.tenant, "workflow_type": place.workflow_type}
    try:
        overrides = orjson.loads(raw or b"[]")
    except orjson.JSONDecodeError:
        return []
    entries = overrides if isinstance(overrides, list) else []
    # Entries that readers cannot parse stay in Redis and do not become commands.
    valid = [each for each in entries if read_overrides([each])[0].speculate != UNREACHABLE]
    return [{**each, **where} for each in valid]


def _mode_fields(place: CommandTarget, modes: Mapping[bytes, bytes]) -> list[dict[str, Any]]:
    where = {"set": "mode", "tenant": place.tenant or None}
    agents = {
        field.decode(errors="replace"): mode.decode(errors="replace")
        for field, mode in without_marker(place.tenant, modes).items()
    }
    return [
        {**where, "agent": None if field == "*" else field.removeprefix("agent/"), "mode": mode}
        for field, mode in agents.items()
    ]
