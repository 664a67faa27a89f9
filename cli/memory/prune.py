"""`headstart memory prune`: deletes what is beyond the limits of age and number."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.support.options import Json, PostgresOptions, TenantOnly
from cli.support.output import echo, show_json, show_table

if TYPE_CHECKING:
    from memory.store.limits import RetentionLimits
    from memory.store.pruning import PruneSweep, Pruning

_EVERY: Final = 10_000


Days = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="DAYS",
        help="Age up to which events are kept, at least 8 [default: HEADSTART_RETENTION_DAYS].",
    ),
]


def _kept(what: str, variable: str) -> Any:
    return typer.Option(min=0, metavar="NUMBER", help=f"{what} [default: {variable}].")


KeepEvents = Annotated[
    int | None, _kept("Packed events kept of each workflow type", "HEADSTART_KEEP_EVENTS")
]
KeepCases = Annotated[
    int | None, _kept("Episodes kept of a user and agent", "HEADSTART_KEEP_CASES")
]
KeepUnnamed = Annotated[
    int | None,
    _kept("Episodes kept of a workflow type of runs without a user", "HEADSTART_KEEP_UNNAMED"),
]


def prune(
    tenant: TenantOnly = None,
    days: Days = None,
    keep_events: KeepEvents = None,
    keep_cases: KeepCases = None,
    keep_unnamed: KeepUnnamed = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would go and why, and change nothing."),
    ] = False,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Delete events and episodes beyond the limits; 0 keeps all.

    Days of events are dropped whole, without --tenant; of packed events the newest stay. Their
    episodes stay. Of a user's episodes, and of those without a user, the different, the rewarded
    and the newest stay. The memory worker does the same once a day. It may be interrupted at any
    time.

    Examples: headstart memory prune --dry-run; headstart memory prune --days 90 --keep-events 0
    """
    from settings import retention_of

    settings = options.read()
    usual = retention_of(settings)
    limits = usual._replace(
        days=usual.days if days is None else days,
        events=usual.events if keep_events is None else keep_events,
        cases=usual.cases if keep_cases is None else keep_cases,
        unnamed=usual.unnamed if keep_unnamed is None else keep_unnamed,
    )
    if 0 < limits.days < 8:
        raise typer.BadParameter("runs are packed after a week; give at least 8 days, or 0")
    if dry_run:
        _show(asyncio.run(_outlook(settings.postgres, limits, tenant)), json=json)
        return
    sweep = asyncio.run(_prune(settings.postgres, limits, tenant))
    if json:
        show_json(sweep.counts)
        return
    echo(
        f"deleted: {sweep.days:,} days of events, {sweep.events:,} packed events of "
        f"{sweep.runs:,} runs, {sweep.cases:,} episodes"
    )


async def _outlook(dsn: str, limits: RetentionLimits, tenant: str | None) -> list[Pruning]:
    from memory.store.pruning import PruneSweep
    from sinks.postgres.reading import reading_postgres

    async with reading_postgres(dsn) as connection:
        return await PruneSweep(limits, tenant).outlook(connection)


async def _prune(dsn: str, limits: RetentionLimits, tenant: str | None) -> PruneSweep:
    from memory.store.maintenance import note_finished
    from memory.store.pruning import PruneSweep
    from sinks.postgres.reading import reading_postgres
    from sinks.postgres.reclaiming import maintain_indexes

    sweep, said = PruneSweep(limits, tenant), 0
    async with reading_postgres(dsn) as connection:
        while await sweep.step(connection):
            if sweep.events + sweep.cases - said >= _EVERY:
                said = sweep.events + sweep.cases
                echo(f"{said:,} events and episodes so far")
        if tenant is None:
            await note_finished(connection, "prune", sweep.counts, sweep.horizon)
        await maintain_indexes(connection, echo)
    return sweep


def _show(found: list[Pruning], *, json: bool) -> None:
    if json:
        show_json({"prunings": [each._asdict() for each in found]})
        return
    rows = [
        (each.tenant or "all", each.of, each.why, f"{each.episodes:,}", f"{each.events:,}")
        for each in found
    ]
    show_table(("tenant", "of", "why", "runs", "events"), rows)
