"""`headstart thresholds`: what executors are told."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.intervening import import_learned, reset
from cli.options import Data, Json, Kafka, Learner, Limit, Redis, Tenant
from cli.output import say, show_json, show_table
from cli.times import now_ms, shown_moment

app = typer.Typer(
    help="The thresholds that are served: list, show, export, import, reset, snapshot.",
    no_args_is_help=True,
)
app.command("reset")(reset)
app.command("import")(import_learned)


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
    tool: Annotated[str | None, typer.Option(help="The tool that is guessed.")] = None,
    tenant: Tenant = "default",
    redis: Redis = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show the threshold that an executor is told for one context, and which level answers.

    An override in force there is named, the most specific first.

    With --json also the level's metrics: hits and misses, how often each mode is wrong, what was
    saved and wasted.

    Example: headstart thresholds show --workflow-type refund --domain retail --user u7
    """
    from headstart.contexts import context_paths
    from headstart.thresholds import Thresholds
    from settings import read_settings
    from sinks.connections import RedisUnreachable
    from sinks.served import overrides_for, served_overrides

    settings = read_settings(redis=redis, data=data)
    context = {
        "tenant": tenant,
        "workflow_type": workflow_type,
        "domain": domain,
        "user_id": user,
    }
    with Thresholds(settings.redis, levels=settings.levels, timeout_s=2.0) as reader:
        known = {key: value for key, value in context.items() if value is not None}
        threshold = reader.get(known, tool=tool)
    if not threshold.available:
        raise RedisUnreachable(settings.redis, "no answer")
    paths = context_paths(workflow_type, context.get, settings.levels)
    served = asyncio.run(served_overrides(settings.redis, tenant, workflow_type))
    overrides = overrides_for(served, paths, tool, now_ms())
    answer = {**threshold._asdict(), "available": threshold.available}
    for part in ("calibration", "override"):
        if answer[part] is not None:
            answer[part] = answer[part]._asdict()
    answer |= asyncio.run(_measured(settings.redis, tenant, workflow_type, threshold.level))
    if json:
        show_json({**answer, "overrides": overrides})
    else:
        rows = [(key, _cell(value)) for key, value in answer.items() if key != "override"]
        show_table(("field", "value"), rows + [("override", _named(each)) for each in overrides])


@app.command("export")
def export(
    file: Annotated[str, typer.Argument(help="Where to write it; -: standard output.")],
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    workflow_type: Annotated[str | None, typer.Option(help="Only this workflow type's.")] = None,
    learner: Learner = None,
    kafka: Kafka = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Write what was learned as JSON lines: a header, then one line per context.

    Each has the learner's state and what it answers now. Disturbs nobody: it reads the changelog.

    Examples: headstart thresholds export learned.jsonl --tenant acme;
    headstart thresholds export - --workflow-type refund | head -3
    """
    from headstart.contexts import workflow_type_of
    from learners.registry import policy
    from replay.learned import learned_lines
    from replay.table import read_whole_table
    from settings import read_settings
    from topics.epoch import read_epoch

    if file == "-" and json:
        raise typer.BadParameter("the export itself is what goes to stdout; leave out --json")
    settings = read_settings(kafka=kafka, data=data, learner=learner)

    def wanted(owner: str, path: str) -> bool:
        of_type = workflow_type is None or workflow_type_of(path) == workflow_type
        return of_type and (tenant is None or owner == tenant)

    async def run() -> list[bytes]:
        epoch = await read_epoch(settings.kafka)
        partitions = await read_whole_table(settings.kafka, epoch)
        levels = settings.levels
        return list(learned_lines(partitions, epoch, policy(settings.learner), levels, wanted))

    lines = asyncio.run(run())
    if file == "-":
        sys.stdout.buffer.writelines(lines)
        sys.stdout.flush()
        return
    unfinished = Path(f"{file}.unfinished")
    unfinished.write_bytes(b"".join(lines))
    unfinished.replace(file)
    if json:
        show_json({"file": file, "contexts": len(lines) - 1})
    else:
        say(f"{len(lines) - 1} contexts written to {file}")


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


def _named(override: Mapping[str, Any]) -> str:
    """Return an override on one line, without what it does not say."""
    said = {**override, "until": shown_moment(override["until"])}
    said["path"] = said["path"] or "the whole workflow type"
    return ", ".join(
        f"{name} {_cell(value)}" for name, value in said.items() if value not in (None, "")
    )


def _cell(value: Any) -> Any:
    return f"{value:.4f}" if isinstance(value, float) else value
