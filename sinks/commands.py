"""What was set by hand to Redis, where executors read it: only what is not older, each announced.

Writing is idempotent and harmless from a late writer, so that whoever knows the log of commands may
write: the command that set it, at once, and every threshold worker, also after Redis lost it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote

import orjson
from redis.exceptions import RedisError

from headstart.contexts import MODES, modes_key, redis_key
from headstart.overrides import OVERRIDES_FIELD
from sinks.connections import RedisUnreachable, asking_redis, connect_redis
from topics.command_log import Remembered
from topics.commands import (
    Begin,
    Command,
    CommandState,
    Place,
    decode_command,
    in_force,
    served_overrides,
)

_SCRIPT: Final = (Path(__file__).parent / "serve.lua").read_text(encoding="utf-8")
_VERSION: Final = "headstart:version:"


def redis_place(place: Place) -> str:
    """Return the hash in which a place is served."""
    if place.kind == "mode":
        return modes_key(place.tenant or None)
    return redis_key(place.tenant, place.workflow_type)


def _place_of(key: str) -> Place | None:
    """Return the place that a hash serves; None where it is no hash of ours."""
    match [unquote(part) for part in key.split(":")]:
        case ["headstart", "thresholds", tenant, workflow_type]:
            return Place("threshold", tenant, workflow_type)
        case ["headstart", "modes", *whose] if len(whose) <= 1:
            return Place("mode", *(whose or [""]))
    return None


def version_key(key: str) -> str:
    """Return where the version of what is served in a hash is kept: in the same slot."""
    return f"{_VERSION}{{{key}}}"


class CommandPublisher:
    """Serves the places of a `CommandState`. Connects on first use."""

    def __init__(self, redis_url: str, *, timeout_s: float = 2.0) -> None:
        self._url = redis_url
        self._redis: Any = connect_redis(redis_url, timeout_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def serve(self, state: CommandState, places: Iterable[Place], now: int) -> int:
        """Serve what `state` says of `places` at `now` (Unix ms); return how many changed.

        Raises `RedisUnreachable`; some may be served then, and serving again does no harm.
        """
        try:
            return sum([await self._one(state, place, now) for place in places])
        except (RedisError, OSError) as error:
            raise RedisUnreachable(self._url, error) from error

    async def serve_all(self, state: CommandState, now: int) -> int:
        """Serve everything, and take away what only an older snapshot of Redis still has.

        Returns how many places changed. Raises as `serve` does.
        """
        try:
            found = {
                place
                async for key in self._redis.scan_iter(f"{_VERSION}*", count=500)
                if (place := _place_of(key.decode().removeprefix(_VERSION)[1:-1]))
            }
        except (RedisError, OSError) as error:
            raise RedisUnreachable(self._url, error) from error
        return await self.serve(state, found.union(state.places), now)

    async def _one(self, state: CommandState, place: Place, now: int) -> int:
        key, version = redis_place(place), state.version(place)
        call = _modes if place.kind == "mode" else _overrides
        changed: int = await self._redis.eval(
            _SCRIPT, 2, key, version_key(key), *version, *call(state, place, now)
        )
        return changed


def _overrides(state: CommandState, place: Place, now: int) -> list[Any]:
    found = state.overrides(place, now)
    value = served_overrides(found)
    call: list[Any] = [redis_place(place), b'{"overrides":%b}' % value, "field", OVERRIDES_FIELD]
    return [*call, value] if found else call


def _modes(state: CommandState, place: Place, _now: int) -> list[Any]:
    modes = state.modes(place)
    announcement = orjson.dumps({"tenant": place.tenant or None, "modes": modes})
    return [MODES, announcement, "all", *(text for pair in modes.items() for text in pair)]


def remembered_by(redis_url: str, now: int) -> Callable[[], Awaitable[Remembered]]:
    """Return what reads the commands that Redis serves, for a log that has to begin again.

    Who set a mode, why and when is not served, so it is lost. It raises `RedisUnreachable`.
    """

    async def read() -> Remembered:
        async with asking_redis(redis_url) as client:
            commands = [each async for each in _served(client, now)]
            numbers = [
                int((await client.get(key) or b"0").split()[0])
                async for key in client.scan_iter(f"{_VERSION}*", count=500)
            ]
        return Remembered(commands, max(numbers, default=0))

    return read


async def _served(client: Any, now: int) -> AsyncIterator[Command]:
    found: list[dict[str, Any]] = []
    for pattern in ("headstart:thresholds:*", f"{MODES}*"):
        async for key in client.scan_iter(pattern, count=500, _type="hash"):
            place = _place_of(key.decode())
            if place is not None and place.kind == "threshold":
                found += _said(place, await client.hget(key, OVERRIDES_FIELD))
            elif place is not None:
                found += _said_of_modes(place, await client.hgetall(key))
    for each in found:
        try:
            command = decode_command(orjson.dumps({**each, "at": now}))
        except ValueError:
            continue  # nobody of ours wrote it
        if not isinstance(command, Begin) and in_force(command, now):
            yield command


def _said(place: Place, raw: bytes | None) -> list[dict[str, Any]]:
    where = {"set": "threshold", "tenant": place.tenant, "workflow_type": place.workflow_type}
    try:
        overrides = orjson.loads(raw or b"[]")
    except orjson.JSONDecodeError:
        return []
    said = overrides if isinstance(overrides, list) else []
    return [{**each, **where} for each in said if isinstance(each, dict)]


def _said_of_modes(place: Place, modes: Mapping[bytes, bytes]) -> list[dict[str, Any]]:
    where = {"set": "mode", "tenant": place.tenant or None}
    agents = {
        field.decode(errors="replace"): mode.decode(errors="replace")
        for field, mode in modes.items()
    }
    return [
        {**where, "agent": None if field == "*" else field.removeprefix("agent/"), "mode": mode}
        for field, mode in agents.items()
    ]
