"""`headstart thresholds`: what executors are told."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.options import Data, Json, Kafka, Limit, Redis, Tenant
from cli.output import say, show_json, show_table

app = typer.Typer(
    help="The thresholds that are served: list, show, snapshot.", no_args_is_help=True
)


@app.command("list")
def list_thresholds(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    limit: Limit = 100,
    redis: Redis = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """List the thresholds served from Redis, most outcomes first.

    Example: headstart thresholds list --tenant acme --limit 20
    """
    from settings import read_settings
    from sinks.served import served_thresholds

    settings = read_settings(redis=redis, data=data)

    async def run() -> list[dict[str, Any]]:
        return [each async for each in served_thresholds(settings.redis, tenant)]

    found = sorted(asyncio.run(run()), key=lambda each: (-each["outcomes"], each["path"]))
    if json:
        show_json({"thresholds": found[:limit], "total": len(found)})
        return
    columns = ("tenant", "path", "speculate", "suggest", "outcomes", "learner")
    show_table(columns, [[_cell(each[column]) for column in columns] for each in found[:limit]])


@app.command("show")
def show(
    workflow_type: Annotated[str, typer.Option(help="The context's workflow type.")],
    domain: Annotated[str | None, typer.Option(help="Its domain.")] = None,
    user: Annotated[str | None, typer.Option(help="Its user id.")] = None,
    tenant: Tenant = "default",
    redis: Redis = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show the threshold that an executor is told for one context, and which level answers.

    With --json also the level's metrics: hits and misses, how often each mode is wrong, what was
    saved and wasted.

    Example: headstart thresholds show --workflow-type refund --domain retail --user u7
    """
    from headstart.thresholds import Thresholds
    from settings import read_settings
    from sinks.connections import RedisUnreachable

    settings = read_settings(redis=redis, data=data)
    context = {
        "tenant": tenant,
        "workflow_type": workflow_type,
        "domain": domain,
        "user_id": user,
    }
    with Thresholds(settings.redis, levels=settings.levels, timeout_s=2.0) as reader:
        threshold = reader.get({key: value for key, value in context.items() if value is not None})
    if not threshold.available:
        raise RedisUnreachable(settings.redis, "no answer")
    answer = asdict(threshold)
    answer |= asyncio.run(_measured(settings.redis, tenant, workflow_type, threshold.level))
    if json:
        show_json(answer)
    else:
        show_table(("field", "value"), [(key, _cell(value)) for key, value in answer.items()])


async def _measured(redis: str, tenant: str, workflow_type: str, path: str) -> dict[str, Any]:
    """Return the metrics of the level that answers, and its moving averages of gain and cost."""
    import msgspec

    from processing.tally import metrics
    from sinks.served import served_value
    from topics.schema import Counts

    value = await served_value(redis, tenant, workflow_type, path) or {}
    counts = value.get("counts")
    return {
        "learner": value.get("learner"),
        "gain_ms": value.get("gain"),
        "cost_ms": value.get("cost"),
        "metrics": metrics(msgspec.convert(counts, Counts)) if counts else None,
    }


@app.command("snapshot")
def snapshot(
    file: Annotated[Path, typer.Argument(help="Where to write it.")],
    kafka: Kafka = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Write the learned state with its offsets to FILE, for `headstart verify --snapshot FILE`.

    Example: headstart thresholds snapshot nightly.gz
    """
    from replay.snapshots import Snapshot, write_snapshot
    from replay.table import read_whole_table
    from settings import read_settings
    from topics.epoch import read_epoch

    settings = read_settings(kafka=kafka, data=data)

    async def run() -> Snapshot:
        epoch = await read_epoch(settings.kafka)
        partitions = await read_whole_table(settings.kafka, epoch)
        rows = {number: each.rows for number, each in partitions.items()}
        return Snapshot(epoch.number, settings.learner, rows)

    rows = write_snapshot(file, asyncio.run(run()))
    if json:
        show_json({"file": str(file), "rows": rows})
    else:
        say(f"{rows} rows written to {file}")


def _cell(value: Any) -> Any:
    return f"{value:.4f}" if isinstance(value, float) else value
