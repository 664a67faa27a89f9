"""Commands to every master of a Redis Cluster, or to the one server."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

from redis.asyncio.cluster import RedisCluster
from redis.crc import key_slot
from redis.exceptions import ReadOnlyError

from headstart.keys import MODES_KEYS

_MOST_TRIED: Final = 10_000
"""Names tried to find a key of each master: one with few slots gets none."""
_OWN_RUN_ID: Final = "return redis.call('INFO', 'server')"


def is_cluster(client: Any) -> bool:
    """Return whether a client is one of a cluster."""
    return isinstance(client, RedisCluster)


def by_slot(keys: Iterable[str]) -> list[list[str]]:
    """Return the keys by their slots: a script can only use keys of one slot on a cluster."""
    found: dict[int, list[str]] = {}
    for key in keys:
        found.setdefault(key_slot(key.encode()), []).append(key)
    return list(found.values())


def modes_patterns(client: Any) -> Sequence[str]:
    """Return the patterns of the hashes of modes."""
    return MODES_KEYS if is_cluster(client) else MODES_KEYS[:1]


async def scan_batches(
    client: Any, pattern: str, *, count: int = 500, kind: str | None = None
) -> AsyncIterator[list[bytes]]:
    """Yield the keys of each SCAN, perhaps more than once, of one master after the other.

    `kind`: only keys of this Redis type. A key whose slot is moved meanwhile may be missing.
    """
    for node in await _nodes(client):
        cursor = 0
        while True:
            found, keys = await client.scan(
                cursor, match=pattern, count=count, _type=kind, **_at(node)
            )
            yield keys
            cursor = found if node is None else found[node.name]
            if not cursor:
                break


async def scan_keys(client: Any, pattern: str, kind: str | None = None) -> AsyncIterator[bytes]:
    """Yield the keys of `scan_batches`.

    In place of redis-py's `scan_iter`, which asks all masters at the same time: if several refuse,
    the errors of all but one are printed when they are garbage-collected.
    """
    async for keys in scan_batches(client, pattern, kind=kind):
        for key in keys:
            yield key


async def load_script(client: Any, text: str) -> None:
    """Load a Lua script into every master."""
    for node in await _nodes(client):
        await client.execute_command("SCRIPT LOAD", text, **_at(node))


async def infos(client: Any) -> dict[str, dict[str, Any]]:
    """Return what INFO has about each master, by `host:port`; "" for the one server."""
    return {
        "" if node is None else node.name: await client.info(**_at(node))
        for node in await _nodes(client)
    }


async def times(client: Any) -> list[tuple[int, int]]:
    """Return the time of each master: Unix seconds, and microseconds."""
    found = []
    for node in await _nodes(client):
        answer = await client.time(**_at(node))
        found += list(answer.values()) if isinstance(answer, dict) else [answer]
    return found


async def key_of_each(client: Any, prefix: str) -> dict[str, str]:
    """Return a key of each master, by `host:port`; `prefix` itself by "" for the one server."""
    nodes = await _nodes(client)
    if not is_cluster(client):
        return {"": prefix}
    found: dict[str, str] = {}
    keys = (f"{prefix}:{number}" for number in range(_MOST_TRIED))
    while len(found) < len(nodes) and (key := next(keys, None)):
        found.setdefault(str(client.get_node_from_key(key).name), key)
    return found


async def run_id(client: Any, key: str | None = None) -> bytes:
    """Return the run id of the server, on a cluster that of the master of `key`.

    Without a key one that stands for all masters: it changes if any of them starts again, or a
    replica takes over. Raises `ReadOnlyError` if a server is a replica.
    """
    if not is_cluster(client):
        return str((await client.info("server"))["run_id"]).encode()
    if key is not None:  # by a script, which is redirected to where the key is
        text: bytes = await client.eval(_OWN_RUN_ID, 1, key)
        return text.partition(b"run_id:")[2].split()[0]
    found = []
    for info in (await infos(client)).values():
        if info["role"] != "master":
            raise ReadOnlyError("a master has become a replica")
        found.append(str(info["run_id"]))
    together = ",".join(sorted(found)).encode()
    return hashlib.sha1(together, usedforsecurity=False).hexdigest().encode()


async def _nodes(client: Any) -> list[Any]:
    """Return the masters, asked for now; [None] for one server."""
    if not is_cluster(client):
        return [None]
    await client.initialize()
    await client.nodes_manager.initialize()
    return sorted(client.get_primaries(), key=lambda node: str(node.name))


def _at(node: Any) -> dict[str, Any]:
    return {} if node is None else {"target_nodes": node}
