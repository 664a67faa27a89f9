"""`UserMemory`: what a user may do with the own memory, for the service of an application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from headstart.events.schema import new_id
from memory.episodes.record import Episode
from memory.users.corrections import correction_event, send_correction
from memory.users.export import Line, user_export
from memory.users.memories import (
    ListedMemory,
    list_memories,
    memory_of,
    require_alone,
    require_events,
)
from memory.users.profile import MemoryProfile
from memory.users.profiles import set_profile, user_profiles
from sinks.postgres.reading import reading_postgres
from topics.control.messages import Purge


class UserMemory:
    """The memory of one user of a tenant: see, correct, export, and prepare its deletion.

    The caller has made sure that it is this user who asks. Every call opens a connection and
    closes it. All raise `PostgresUnreachable`, `NotMigrated` and `PermissionMissing`.
    """

    def __init__(self, postgres: str, kafka: str, *, tenant: str, user_id: str) -> None:
        """Connect to nothing yet. `postgres`: DSN; `kafka`: host:port, for corrections."""
        self._postgres, self._kafka = postgres, kafka
        self._tenant, self._user_id = tenant, user_id

    async def memories(
        self, *, agent_id: str | None = None, since: int = 0, limit: int = 100
    ) -> list[ListedMemory]:
        """Return the episodes that ended since a time (Unix ms), newest first."""
        async with reading_postgres(self._postgres) as connection:
            return await list_memories(
                connection, self._tenant, self._user_id,
                agent_id=agent_id, since=since, limit=limit,
            )  # fmt: skip

    async def show(self, name: str) -> Episode:
        """Return one episode by its id or workflow id. Raises `NotTheirs`."""
        async with reading_postgres(self._postgres) as connection:
            return await memory_of(connection, self._tenant, self._user_id, name)

    async def correct(self, name: str, **changes: Any) -> dict[str, Any]:
        """Send a correction of one episode and return its event; the worker applies it.

        `changes`: new values of query, response, outcome, concepts, domains, insights. Raises
        `NotTheirs`, `InvalidCorrection`, `WithoutEvents`, and `NotDelivered` if the broker does not
        answer.
        """
        async with reading_postgres(self._postgres) as connection:
            episode = await memory_of(connection, self._tenant, self._user_id, name)
            event = correction_event(episode, changes)
            await require_events(connection, self._tenant, episode)
        await asyncio.to_thread(send_correction, self._kafka, event)
        return event

    async def export(self) -> AsyncIterator[Line]:
        """Yield everything of the user, as `memory.users.export.user_export`."""
        async with reading_postgres(self._postgres) as connection:
            async for line in user_export(connection, self._tenant, self._user_id):
                yield line

    async def deletion(self, name: str | None = None) -> Purge:
        """Return the purge of one episode's workflow, or of everything of the user.

        `replay.purge.run.look_up_purge` and `carry_out` carry it out. Raises `NotTheirs`, and
        `SharedWorkflow` if others have a part in the workflow.
        """
        now = time.time_ns() // 1_000_000
        if name is None:
            return Purge(new_id(now), now, self._tenant, self._user_id)
        async with reading_postgres(self._postgres) as connection:
            episode = await memory_of(connection, self._tenant, self._user_id, name)
            await require_alone(connection, self._tenant, episode)
        return Purge(new_id(now), now, self._tenant, workflow_id=episode.workflow_id)

    async def profiles(self) -> list[MemoryProfile]:
        """Return what the user has set, that for all agents first; empty for nothing."""
        async with reading_postgres(self._postgres) as connection:
            return await user_profiles(connection, self._tenant, self._user_id)

    async def set_profile(self, agent_id: str | None = None, **changes: Any) -> MemoryProfile:
        """Set fields of the profile for all agents (None) or for one, as `set_profile`."""
        async with reading_postgres(self._postgres) as connection:
            return await set_profile(connection, self._tenant, self._user_id, agent_id, **changes)
