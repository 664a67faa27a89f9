"""Reads the modes that Redis serves, including those written by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from headstart.keys import MODES, modes_key, modes_owner
from headstart.thresholds.modes import Mode, known_mode, most_restrictive
from sinks.connections import redis_client
from sinks.redis.masters import is_cluster, modes_patterns, scan_keys
from sinks.redis.modes_marker import without_marker


class ServedMode(NamedTuple):
    """One mode in Redis. `tenant` None: all tenants; `field`: `*`, or `agent/AGENT_ID`.

    `stored`: its text, or why it cannot be read; `holds`: how executors interpret it.
    """

    tenant: str | None
    field: str
    stored: str
    holds: Mode

    @property
    def sound(self) -> bool:
        """Whether it is a valid mode; executors take an invalid one for off."""
        return self.stored == self.holds

    @property
    def owner(self) -> str:
        """A description of the executors that it applies to."""
        tenant = "everybody" if self.tenant is None else f"tenant {self.tenant}"
        return tenant if self.field == "*" else f"{self.field.replace('/', ' ', 1)} of {tenant}"


async def served_modes(
    redis_url: str, tenant: str | None = None, agent: str | None = None
) -> list[ServedMode]:
    """Return the modes that apply to these executors. Raises `RedisUnreachable`."""
    fields = {"*"} if agent is None else {"*", f"agent/{agent}"}
    async with redis_client(redis_url) as client:
        found = [each async for each in _modes_in(client, MODES, None) if each.field == "*"]
        if tenant is not None:
            key = modes_key(tenant, clustered=is_cluster(client))
            theirs = _modes_in(client, key, tenant)
            found += [each async for each in theirs if each.field in fields]
    return found


async def served_agents(redis_url: str, tenant: str) -> set[str]:
    """Return the agents of a tenant that have a mode. Raises `RedisUnreachable`."""
    prefix = "agent/"
    async with redis_client(redis_url) as client:
        key = modes_key(tenant, clustered=is_cluster(client))
        modes = [each async for each in _modes_in(client, key, tenant)]
    return {each.field.removeprefix(prefix) for each in modes if each.field.startswith(prefix)}


async def every_mode(redis_url: str) -> list[ServedMode]:
    """Return the modes of all tenants. Raises `RedisUnreachable`."""
    async with redis_client(redis_url) as client:
        return await _every_mode(client)


async def unsound_modes(client: Any) -> list[ServedMode]:
    """Return the invalid modes of all tenants."""
    return [each for each in await _every_mode(client) if not each.sound]


async def _every_mode(client: Any) -> list[ServedMode]:
    found = []
    for pattern in modes_patterns(client):
        async for key in scan_keys(client, pattern):
            tenant = modes_owner(key.decode(errors="replace"))
            found += [each async for each in _modes_in(client, key, tenant)]
    return sorted(found, key=lambda each: (each.tenant or "", each.field))


async def _modes_in(client: Any, key: str | bytes, tenant: str | None) -> AsyncIterator[ServedMode]:
    try:
        stored = await client.hgetall(key)
    except ResponseError as error:  # the key is not a hash
        yield ServedMode(tenant, "*", str(error), "off")
        return
    for field, raw in sorted(without_marker(tenant, stored).items()):
        text = raw.decode(errors="replace")
        yield ServedMode(tenant, field.decode(errors="replace"), text, known_mode(text))


def holding(modes: list[ServedMode]) -> Mode | None:
    """Return the most restrictive mode, None if there is none."""
    return most_restrictive(each.holds for each in modes) if modes else None
