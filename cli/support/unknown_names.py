"""Notes about a tenant, workflow type or agent that a command takes, and that may be misspelled."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from cli.support.output import echo

if TYPE_CHECKING:
    from settings import Settings

_NOTE_S = 2.0
"""How long a note may take."""


def notes_on_names(
    settings: Settings,
    tenant: str | None,
    workflow_type: str | None = None,
    agent: str | None = None,
) -> list[str]:
    """Return the notes on names that Redis knows nothing of; None: not given.

    Empty if Redis does not answer within `_NOTE_S`: a command must not wait for a note.
    """
    from sinks.redis.known_names import known_names
    from sinks.redis.served_modes import served_agents

    if tenant is None and workflow_type is None:
        return []

    async def notes() -> list[str]:
        async with asyncio.timeout(_NOTE_S):
            found = unknown_names(await known_names(settings.redis), tenant, workflow_type)
            if agent is not None and tenant is not None:
                agents = await served_agents(settings.redis, tenant)
                found.append(_unchecked_agent(agent, agents - {agent}))
            return found

    try:
        return asyncio.run(notes())
    except (ConnectionError, TimeoutError):
        return []


def unknown_names(
    known: Collection[tuple[str, str]], tenant: str | None, workflow_type: str | None
) -> list[str]:
    """Return the notes on a tenant and a workflow type. `known`: pairs of both."""
    from settings.suggestions import did_you_mean

    tenants = {owner for owner, _ in known}
    if tenant is not None and tenant not in tenants:
        return [f"nothing is learned yet for the tenant {tenant!r}{did_you_mean(tenant, tenants)}"]
    types = {name for owner, name in known if tenant in (None, owner)} - {""}
    if workflow_type is None or workflow_type in types:
        return []
    of = "" if tenant is None else f" of {tenant!r}"
    return [
        f"nothing is learned yet for the workflow type {workflow_type!r}{of}"
        f"{did_you_mean(workflow_type, types)}"
    ]


def workflow_type_in(pattern: str) -> str | None:
    """Return the workflow type that a pattern of contexts names; None: any."""
    from headstart.keys import workflow_type_of

    for part in pattern.split("/"):
        if part.startswith("workflow_type=") and part != "workflow_type=*":
            return workflow_type_of(part)
    return None


def echo_notes(notes: Sequence[str]) -> None:
    """Print notes on stderr."""
    for note in notes:
        echo(f"note: {note}")


def _unchecked_agent(agent: str, others: Collection[str]) -> str:
    from settings.suggestions import did_you_mean

    return (
        f"there is no list of agents to check {agent!r} against{did_you_mean(agent, others)}: the "
        "mode applies where an executor gives exactly this agent"
    )
