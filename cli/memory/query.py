"""`headstart memory query`: the stored events of one workflow."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from cli.support.options import Json, Limit, PostgresOptions, Since, Tenant
from cli.support.output import require_found, show_json, show_table
from cli.support.times import iso_moment, parse_since


def query(
    workflow_id: Annotated[str, typer.Option(help="The workflow whose events to show.")],
    tenant: Tenant = "default",
    since: Since = None,
    limit: Limit = 100,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Show the events of one workflow, newest first.

    Example: headstart memory query --workflow-id w1 --json
    """
    from sinks.postgres.queries import events_of_workflow
    from sinks.postgres.reading import reading_postgres

    settings = options.read()

    async def run() -> list[dict[str, Any]]:
        async with reading_postgres(settings.postgres) as connection:
            return await events_of_workflow(connection, tenant, workflow_id, limit)

    begin = parse_since(since)
    events = [event for event in asyncio.run(run()) if event["timestamp"] >= begin]
    if json:
        show_json({"events": events})
    else:
        _show(events)
    require_found(len(events), "event", workflow_id=workflow_id, tenant=tenant, since=since)


def _show(events: list[dict[str, Any]]) -> None:
    columns = ("timestamp", "event_type", "task_id", "tool_id", "confidence", "success")
    rows = []
    for event in events:
        at = iso_moment(event["timestamp"])
        rows.append([at, *(event.get(column) for column in columns[1:])])
    show_table(columns, rows)
