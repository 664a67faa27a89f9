"""`headstart memory consolidate`: merges repeated runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.support.options import Json, PostgresOptions, TenantOnly
from cli.support.output import echo, show_json, show_table

if TYPE_CHECKING:
    from memory.store.merging import ConsolidationSweep, MergeOutlook

_EVERY_RUNS: Final = 10_000


def consolidate(
    tenant: TenantOnly = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be merged, and change nothing.")
    ] = False,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Merge repeated runs of one user into one episode, which counts them.

    Runs are merged if they succeeded as expected, have an equal query, context and equal calls with
    arguments, and are packed. The newest stands for the others. Failures and surprises stay. The
    memory worker does the same once a day. It may be interrupted at any time.

    Examples: headstart memory consolidate --dry-run; headstart memory consolidate --tenant acme
    """
    settings = options.read()
    if dry_run:
        _show(asyncio.run(_outlook(settings.postgres, tenant)), json=json)
        return
    sweep = asyncio.run(_consolidate(settings.postgres, tenant))
    if json:
        show_json(sweep.counts)
        return
    echo(f"{sweep.merged:,} runs are merged into {sweep.groups:,}, which count them")


async def _outlook(dsn: str, tenant: str | None) -> list[MergeOutlook]:
    from memory.store.merging import consolidation_outlook
    from sinks.postgres.reading import reading_postgres

    async with reading_postgres(dsn) as connection:
        return await consolidation_outlook(connection, tenant)


async def _consolidate(dsn: str, tenant: str | None) -> ConsolidationSweep:
    from memory.store.maintenance import note_finished
    from memory.store.merging import ConsolidationSweep
    from sinks.postgres.reading import reading_postgres

    sweep, said = ConsolidationSweep(tenant), 0
    async with reading_postgres(dsn) as connection:
        while await sweep.step(connection):
            if sweep.merged - said >= _EVERY_RUNS:
                said = sweep.merged
                echo(f"{said:,} runs so far")
        if tenant is None:
            await note_finished(connection, "consolidate", sweep.counts)
    return sweep


def _show(found: list[MergeOutlook], *, json: bool) -> None:
    if json:
        show_json({"runs": [each._asdict() for each in found]})
        return
    rows = [(each.tenant, each.workflow_type, each.what, f"{each.runs:,}") for each in found]
    show_table(("tenant", "workflow type", "what", "runs"), rows)
    merged = sum(each.runs for each in found if each.what == "to merge")
    echo(f"{merged:,} of {sum(each.runs for each in found):,} runs would be merged")
