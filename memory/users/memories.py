"""Lists the memories of a user, and finds the run of one."""

from __future__ import annotations

from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from memory.episodes.hashes import id_text
from memory.episodes.record import Episode
from memory.store.reading import find_episodes
from memory.store.sealed_texts import open_texts
from memory.users.profiles import SQL
from sinks.postgres.encryption.tenant_keys import TenantKeys, keys_to_read
from sinks.postgres.reading import tenant_scope


class NotTheirs(LookupError):
    """No memory of this user has the name; the message says so."""


class SharedWorkflow(ValueError):
    """A memory cannot be deleted alone, since others have a part in its workflow."""


class WithoutEvents(ValueError):
    """A memory cannot be corrected, since the events that it was made of are not stored."""


class ListedMemory(NamedTuple):
    """One episode of a user, as it is listed."""

    id: int
    workflow_type: str
    workflow_id: str
    agent_id: str | None
    ended: int
    """Unix ms."""
    outcome: str | None
    reward: float | None
    query: str | None
    tools: list[str]
    state: str
    events: int

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object; the id as `memory.episodes.hashes.id_text` writes it."""
        return self._asdict() | {"id": id_text(self.id)}


async def list_memories(
    connection: AsyncConnection[Any],
    tenant: str,
    user_id: str,
    *,
    agent_id: str | None = None,
    since: int = 0,
    limit: int = 100,
) -> list[ListedMemory]:
    """Return a user's episodes that ended since a time (Unix ms), newest first.

    `agent_id`: only those of this agent, the first that an event of the run names. Raises
    `EncryptionKeyMissing`.
    """
    wanted = {
        "tenant": tenant, "user_id": user_id, "agent_id": agent_id, "since": since, "limit": limit,
    }  # fmt: skip
    async with (
        tenant_scope(connection, tenant),
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        await cursor.execute(SQL["memories"], wanted)
        rows = await cursor.fetchall()
        sealed = any(row["sealed"] for row in rows)
        keys = await keys_to_read(connection, [tenant] if sealed else [])
    return [_listed(row, keys, tenant) for row in rows]


def _listed(row: dict[str, Any], keys: TenantKeys, tenant: str) -> ListedMemory:
    sealed, content_id = row.pop("sealed"), row.pop("content_id")
    if sealed:
        row["query"] = open_texts(keys, tenant, content_id, sealed).query
    return ListedMemory(**row)


async def memory_of(
    connection: AsyncConnection[Any], tenant: str, user_id: str, name: str
) -> Episode:
    """Return the one episode of a user whose id, or workflow id, is `name`.

    Raises `NotTheirs` if there is none, and `ValueError` if several have the workflow id.
    """
    found = [
        each for each in await find_episodes(connection, tenant, name) if each.user_id == user_id
    ]
    if not found:
        raise NotTheirs(
            f"user {user_id!r} of tenant {tenant!r} has no memory {name!r}: see `headstart memory "
            f"list --tenant {tenant} --user {user_id}`"
        )
    if len(found) > 1:
        ids = ", ".join(f"{id_text(each.id)} ({each.workflow_type})" for each in found)
        raise ValueError(f"several memories have the workflow id {name!r}; give the id: {ids}")
    return found[0]


async def require_events(connection: AsyncConnection[Any], tenant: str, episode: Episode) -> None:
    """Raise `WithoutEvents` unless the episode can be made again: of all its events, and one more.

    An episode of fewer events never replaces one of more.
    """
    wanted = {
        "tenant": tenant,
        "workflow_id": episode.workflow_id,
        "workflow_type": episode.workflow_type,
    }
    async with tenant_scope(connection, tenant):
        ((stored,),) = await (await connection.execute(SQL["count_events"], wanted)).fetchall()
    if stored < episode.events:
        raise WithoutEvents(
            f"the memory {episode.workflow_id!r} was made of {episode.events} events, of which "
            f"{stored} are stored: it was imported, or they are too old; it can be deleted, or "
            "imported again with the correction"
        )


async def require_alone(connection: AsyncConnection[Any], tenant: str, episode: Episode) -> None:
    """Raise `SharedWorkflow` if a purge of the episode's workflow id would erase more than it."""
    wanted = {"tenant": tenant, "workflow_id": episode.workflow_id}
    async with tenant_scope(connection, tenant):
        rows = await (await connection.execute(SQL["of_workflow"], wanted)).fetchall()
    own = episode.workflow_type, episode.user_id
    others = sorted(
        f"{kind} of {f'user {user!r}' if user else 'no user'}"
        for kind, user in rows
        if (kind, user) != own
    )
    if others:
        raise SharedWorkflow(
            f"the workflow id {episode.workflow_id!r} is also that of {', '.join(others)}: "
            f"`headstart memory purge --tenant {tenant} --workflow {episode.workflow_id}` erases "
            "all of them"
        )
