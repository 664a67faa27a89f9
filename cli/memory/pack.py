"""`headstart memory pack`: packs the events of cold runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.support.options import Json, PostgresOptions, TenantOnly
from cli.support.output import echo, show_json, show_table
from cli.support.times import parse_age

if TYPE_CHECKING:
    from sinks.postgres.packing.sweep import PackSweep, TenantOutlook

_EVERY_RUNS: Final = 10_000
_DAY_MS: Final = 86_400_000


def pack(
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="AGE",
            help="Age of a run's last event, at least 1d [default: HEADSTART_PACK_AFTER_DAYS].",
        ),
    ] = None,
    tenant: TenantOnly = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be packed, and change nothing.")
    ] = False,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Pack the events of cold runs: compressed into one column of their episode.

    Every command and query of Headstart reads them as before; SQL of your own on the table
    episodic_events no longer finds them. The memory worker does the same once an hour. It may be
    interrupted at any time, and goes on where it was.

    Examples: headstart memory pack --dry-run; headstart memory pack --older-than 2d --tenant acme
    """
    settings = options.read()
    days = settings.pack_after_days or 7.0
    age_ms = days * _DAY_MS if older_than is None else parse_age(older_than)
    if age_ms < _DAY_MS:
        raise typer.BadParameter("runs of the last day are never packed; give at least 1d")
    if dry_run:
        _show(asyncio.run(_outlook(settings.postgres, age_ms / 1000, tenant)), json=json)
        return
    sweep = asyncio.run(_pack(settings.postgres, age_ms / 1000, tenant))
    found = {
        "runs": sweep.runs, "events": sweep.events, "bytes_before": sweep.bytes_before,
        "bytes_after": sweep.bytes_after, "damaged": len(sweep.damaged),
    }  # fmt: skip
    if json:
        show_json(found)
        return
    echo(
        f"{sweep.runs:,} runs with {sweep.events:,} events are packed: their content took "
        f"{sweep.bytes_before / 1e6:,.1f} MB, and takes {sweep.bytes_after / 1e6:,.1f} MB"
    )


async def _outlook(dsn: str, cold_s: float, tenant: str | None) -> list[TenantOutlook]:
    from sinks.postgres.packing.sweep import pack_outlook
    from sinks.postgres.reading import reading_postgres

    async with reading_postgres(dsn) as connection:
        return await pack_outlook(connection, cold_s, tenant)


async def _pack(dsn: str, cold_s: float, tenant: str | None) -> PackSweep:
    from sinks.postgres.packing.sweep import PackSweep
    from sinks.postgres.reading import reading_postgres

    sweep, said = PackSweep(cold_s, tenant), 0
    async with reading_postgres(dsn) as connection:
        while await sweep.step(connection):
            if sweep.runs - said >= _EVERY_RUNS:
                said = sweep.runs
                echo(f"{said:,} runs so far")
    for reason in sweep.damaged:
        echo(f"left as it is: {reason}")
    return sweep


def _show(found: list[TenantOutlook], *, json: bool) -> None:
    if json:
        show_json({"tenants": [each._asdict() for each in found]})
        return
    rows: list[tuple[Any, ...]] = [
        (
            each.tenant, f"{each.cold_runs:,}", f"{each.cold_events:,}", f"{each.young_runs:,}",
            f"{each.large_runs:,}", f"{each.packed_runs:,}",
        )
        for each in found
    ]  # fmt: skip
    heads = ("tenant", "to pack", "their events", "too young", "too large", "packed already")
    show_table(heads, rows)
