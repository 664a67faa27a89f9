"""`headstart thresholds republish`: makes Redis equal to the table at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.options import Json, KafkaRedisOptions, TenantOnly
from cli.support.output import FAILURE, echo, require_found, show_json, show_table
from cli.support.targets import require_own_log
from cli.support.times import now_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replay.log.live_table import TablePartition
    from replay.verify.served import Repaired
    from settings import Settings
    from topics.epoch import Epoch

MOST_NAMED = 100
"""Most values to list; all are counted."""


def republish(
    tenant: TenantOnly = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report differences, and replace nothing.")
    ] = False,
    *,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Make Redis equal to the table: fix missing, differing, unreadable and foreign values.

    Workers do the same in the background, slowly; this command reads the changelog and needs no
    worker. Modes and overrides are published too; those in Redis without a command are kept and
    listed if they restrict executors. Exit code 0, even if nothing differed; 1, with nothing
    changed, if the tenant has no context in the table and no value in Redis, if the changelog has
    no rows for values in Redis, or if the data directory was learned with another number of
    partitions; also 1 if Redis has newer modes or overrides than the log of commands.

    Examples: headstart thresholds republish --dry-run; headstart thresholds republish --tenant acme
    """
    from replay.verify.served import named

    reading = options.load()
    settings = reading.settings

    async def run() -> tuple[Repaired, dict[str, Any], int]:
        from replay.log.live_table import read_whole_table
        from topics.epoch import read_epoch

        epoch = await read_epoch(settings.kafka)
        await require_own_log(reading, epoch)
        tables = await read_whole_table(settings.kafka, epoch)
        found = await repaired(settings, epoch, tables, tenant, dry_run=dry_run)
        commands = await _commands(settings, dry_run=dry_run)
        about = len(found.wrong) + (_contexts_of(tables, tenant) if tenant else 0)
        return found, commands, about

    found, commands, about = asyncio.run(run())
    shown = [named(each) for each in found.wrong[:MOST_NAMED]]
    if json:
        counts = {"wrong": dict(found.counts), "repaired": found.repaired}
        show_json({**counts, "named": shown, "foreign": found.foreign[:MOST_NAMED], **commands})
    else:
        _show(found, shown, commands, dry_run=dry_run)
    require_found(about, "context", tenant=tenant)
    if commands["newer"]:
        raise typer.Exit(FAILURE)


def _contexts_of(tables: Mapping[int, TablePartition], tenant: str) -> int:
    """Return the number of a tenant's contexts in the table."""
    from processing.state.rows import CONTEXT, context_of, is_deleted

    return sum(
        key.startswith(CONTEXT) and not is_deleted(row) and context_of(key)[0] == tenant
        for table in tables.values()
        for key, row in table.rows.items()
    )


def _show(
    found: Repaired, shown: list[dict[str, Any]], commands: Mapping[str, Any], *, dry_run: bool
) -> None:
    if shown:
        columns = ("tenant", "path", "what")
        show_table(columns, [[each[column] for column in columns] for each in shown])
    for other in found.foreign[:MOST_NAMED]:
        echo(f"not a context, left unchanged: {other['key']} {other['field']}".rstrip())
    for kept in commands["kept"]:
        echo(f"no command set it, kept because it restricts: {kept}")
    for newer in commands["newer"]:
        echo(f"left unchanged: {newer}")
    done = "would be replaced" if dry_run else f"replaced: {found.repaired}"
    echo(f"{len(found.wrong)} values in Redis differed from the table; {done}")


async def repaired(
    settings: Settings,
    epoch: Epoch,
    tables: Mapping[int, TablePartition],
    tenant: str | None = None,
    *,
    dry_run: bool = False,
) -> Repaired:
    """Make Redis equal to the given tables; return the differences.

    Raises `RedisUnreachable` and `BrokerUnreachable`.
    """
    from replay.verify.served import ServedTable, repair_redis
    from sinks.redis.stored_fields import Field

    served = ServedTable(epoch)
    for partition, table in tables.items():
        served.add(partition, table.rows)
    wanted: Callable[[Field], bool] = lambda field: tenant in (None, field.tenant)  # noqa: E731
    return await repair_redis(
        settings.redis, settings.kafka, served, dry_run=dry_run, wanted=wanted
    )


async def repair_or_report(
    settings: Settings, epoch: Epoch, tables: Mapping[int, TablePartition]
) -> int | None:
    """Repair Redis as part of another command; return the number of replaced values.

    Prints a line and returns None if Redis is unreachable or the table has no rows yet: workers
    repair it later.
    """
    from replay.verify.served import TableUnwritten

    try:
        return (await repaired(settings, epoch, tables)).repaired
    except (ConnectionError, TableUnwritten) as error:
        echo(f"Redis was not compared with the table; a threshold worker does that later ({error})")
        return None


async def _commands(settings: Settings, *, dry_run: bool) -> dict[str, Any]:
    """Publish modes and overrides again; return the number of changes and the values kept."""
    from sinks.redis.commands import CommandPublisher
    from topics.commands.log import is_whole, read_commands
    from topics.kafka.admin import TopicsMissing

    try:
        state = await read_commands(settings.kafka)
    except TopicsMissing:
        return {"commands": 0, "kept": [], "newer": []}  # no command was ever sent
    async with CommandPublisher(settings.redis) as publisher:
        found = await publisher.look(state, now_ms())
        kept = [
            f"{publisher.hash_of(place)}: {what}" for place, merged in found for what in merged.kept
        ]
        changed = sum(bool(s.changes) and place not in publisher.newer for place, s in found)
        if not dry_run:
            whole = partial(is_whole, settings.kafka, state)
            changed = await publisher.serve_all(state, now_ms(), whole)
        newer = [str(each) for each in publisher.newer.values()]
    return {"commands": changed, "kept": kept, "newer": newer}
