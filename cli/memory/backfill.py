"""`headstart memory backfill`: episodes of events that were stored before, or of recorded runs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.options import Json, PostgresOptions, Since
from cli.support.output import echo, show_json
from cli.support.times import now_ms, parse_since

if TYPE_CHECKING:
    from memory.episodes.record import Episode
    from settings import Settings

_LOOK_S = 1.0


def backfill(
    runs: Annotated[
        str | None,
        typer.Option(help="File of recorded agent runs, as `headstart import` writes them."),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Only this tenant; with --runs: theirs [default: default].")
    ] = None,
    since: Since = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the memory worker has done it.")
    ] = False,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Make episodes of all stored events, such as those of before the memory, or of recorded runs.

    Of stored events, every run is put into the outbox, and the memory worker assembles it; what it
    has already gives the same episode again. With --runs the episodes are stored at once; runs
    without times get the time of now. A run's domain becomes its workflow type, and its reward the
    outcome: 1 success, above 0 partial, 0 failure.

    Examples: headstart memory backfill --wait; headstart memory backfill --since 30d --tenant acme;
    headstart memory backfill --runs runs.jsonl --tenant acme
    """
    from cli.support.identifiers import require_names

    require_names(tenant=tenant)
    settings = options.read()
    if runs is not None:
        if since is not None or wait:
            raise typer.BadParameter("--since and --wait are for stored events; leave out --runs")
        _from_runs(settings, runs, tenant or "default", json=json)
        return
    begun = time.monotonic()
    noted = asyncio.run(_from_events(settings.postgres, tenant, parse_since(since), wait=wait))
    if json:
        show_json({"runs": noted, "seconds": round(time.monotonic() - begun, 3)})
    else:
        after = "are done" if wait else "wait for the memory worker: see `headstart memory stats`"
        echo(f"{noted:,} runs {after}")


async def _from_events(dsn: str, tenant: str | None, since: int, *, wait: bool) -> int:
    from memory.store.outbox import fill_outbox, outbox_lag
    from sinks.postgres.reading import reading_postgres

    async with reading_postgres(dsn) as connection:
        noted = await fill_outbox(connection, tenant, since)
        echo(f"{noted:,} runs are in the outbox")
        said = 0.0
        while wait and (left := (await outbox_lag(connection)).rows):
            if time.monotonic() - said >= 10 * _LOOK_S:
                said = time.monotonic()
                echo(f"{left:,} rows wait for the memory worker (`headstart worker memory`)")
            await asyncio.sleep(_LOOK_S)
    return noted


def _from_runs(settings: Settings, file: str, tenant: str, *, json: bool) -> None:
    from cli.memory.importing import store_file
    from memory.episodes.imported import episode_of_run

    now = now_ms()

    def convert(number: int, record: Any) -> Episode:
        return episode_of_run(record, tenant, number, now)

    store_file(settings, file, convert, json=json)
