"""`headstart memory list`: the memories of one user."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.options import Json, Limit, PostgresOptions, Since, Tenant
from cli.support.output import require_found, show_json, show_table
from cli.support.times import iso_moment, parse_since
from memory.episodes.hashes import id_text

if TYPE_CHECKING:
    from memory.users.memories import ListedMemory

User = Annotated[str, typer.Option("--user", help="The user.")]
_SHOWN = 60


def list_(
    user: User,
    tenant: Tenant = "default",
    agent: Annotated[
        str | None, typer.Option(help="Only runs whose first named agent is this one.")
    ] = None,
    since: Since = None,
    limit: Limit = 100,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """List the memories of a user, newest first: when, what was asked, how it ended.

    A memory is the episode of a run whose user it is. `headstart memory show ID` has all of one.
    Exit code 1: there is none.

    Example: headstart memory list --tenant acme --user u7 --since 30d --json
    """
    from cli.support.identifiers import require_names
    from memory.users.memories import list_memories
    from sinks.postgres.reading import reading_postgres

    require_names(user=user, agent=agent)
    settings = options.read()
    begin = parse_since(since)

    async def run() -> list[ListedMemory]:
        async with reading_postgres(settings.postgres) as connection:
            return await list_memories(
                connection, tenant, user, agent_id=agent, since=begin, limit=limit
            )

    found = asyncio.run(run())
    if json:
        show_json({"memories": [each.as_json() for each in found]})
    else:
        columns = ("id", "ended", "workflow_id", "agent", "outcome", "tools", "query")
        show_table(columns, map(_row, found))
    require_found(len(found), "memory", tenant=tenant, user=user, agent=agent)


def _row(found: ListedMemory) -> list[object]:
    query = found.query or ""
    tools = " ".join(found.tools[:4]) + (" ..." if len(found.tools) > 4 else "")
    return [
        id_text(found.id), iso_moment(found.ended), found.workflow_id, found.agent_id,
        found.outcome, tools, query[:_SHOWN] + ("..." if len(query) > _SHOWN else ""),
    ]  # fmt: skip
