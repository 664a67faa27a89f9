"""`headstart thresholds`: the thresholds that executors read."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from cli.support.option_groups import CommandGroup, Only
from cli.support.options import (
    Json,
    KafkaOptions,
    KafkaRedisOptions,
    Limit,
    SettingOptions,
    Since,
    TenantOnly,
    WorkflowTypeOnly,
)
from cli.support.output import claim_outputs, echo, require_found, show_json, show_table
from cli.support.times import parse_since
from cli.support.unreadable import described, report_unreadable
from cli.thresholds.learned_times import read_learned_times
from cli.thresholds.republish import republish
from cli.thresholds.reset_and_import import import_learned, reset
from cli.thresholds.show import history, show

app = CommandGroup(
    help="The thresholds that are served: list, show, history, export, import, reset, republish, "
    "snapshot.",
)
app.command("reset")(reset)
app.command("import")(import_learned)
app.command("republish")(republish)


@app.command("list")
def list_thresholds(
    tenant: TenantOnly = None,
    since: Since = None,
    limit: Limit = 100,
    *,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """List the thresholds served from Redis, most outcomes first; --since: those that learned then.

    The time a context last learned is exact to five minutes: --since keeps every context that may
    have learned since then, and asks the broker about it.

    Example: headstart thresholds list --tenant acme --limit 20
    """
    from sinks.redis.queries import UnreadableFields, served_thresholds

    settings = options.read()
    begin = parse_since(since)
    unreadable: list[UnreadableFields] = []

    async def run() -> list[dict[str, Any]]:
        served = served_thresholds(settings.redis, tenant, unreadable=unreadable)
        found = [each async for each in served]
        if since is None:
            return found
        times = await read_learned_times(settings.kafka)
        return [each for each in found if times.latest(each) >= begin]

    found = sorted(asyncio.run(run()), key=lambda each: (-each["outcomes"], each["path"]))
    if json:
        more = {"unreadable": described(unreadable)} if unreadable else {}
        show_json({"thresholds": found[:limit], "total": len(found), **more})
    else:
        columns = ("tenant", "path", "speculate", "suggest", "outcomes", "learner")
        show_table(columns, [[_cell(each[column]) for column in columns] for each in found[:limit]])
        report_unreadable(unreadable)
    require_found(len(found) + len(unreadable), "threshold", tenant=tenant, since=since)


app.command("show")(show)
app.command("history")(history)


@app.command("export")
def export(
    file: Annotated[str, typer.Argument(help="Where to write it; -: standard output.")],
    tenant: TenantOnly = None,
    workflow_type: WorkflowTypeOnly = None,
    *,
    options: Annotated[SettingOptions, Only("kafka", "kafka_config", "data", "learner")],
    json: Json = False,
) -> None:
    """Write the learned state as JSON lines: a header, then one line per context.

    A line has the learner's state and its current answer. Reads only the changelog, so workers are
    not affected.

    Examples: headstart thresholds export learned.jsonl --tenant acme;
    headstart thresholds export - --workflow-type refund | head -3
    """
    from headstart.keys import workflow_type_of
    from learners.registry import policy
    from replay.files.output import write_file
    from replay.log.live_table import read_whole_table
    from replay.rebuild.learned_state_file import learned_lines
    from topics.epoch import read_minted_epoch

    claim_outputs(file, json=json)
    settings = options.read()

    def wanted(owner: str, path: str) -> bool:
        of_type = workflow_type is None or workflow_type_of(path) == workflow_type
        return of_type and (tenant is None or owner == tenant)

    async def run() -> list[bytes]:
        epoch, _partitions = await read_minted_epoch(settings.kafka)
        partitions = await read_whole_table(settings.kafka, epoch)
        levels = settings.levels
        return list(learned_lines(partitions, epoch, policy(settings.learner), levels, wanted))

    lines = asyncio.run(run())
    if len(lines) == 1:
        if json:
            show_json({"file": file, "contexts": 0})
        echo(f"nothing was found, so {file} is not written")
        chosen = {"tenant": tenant, "workflow_type": workflow_type}
        require_found(0, "context", always=True, **chosen)
    write_file(file, b"".join(lines))
    if json:
        show_json({"file": file, "contexts": len(lines) - 1})
    else:
        echo(f"{len(lines) - 1} contexts written to {file}")


@app.command("snapshot")
def snapshot(
    file: Annotated[str, typer.Argument(help="Where to write it; -: standard output.")],
    *,
    options: KafkaOptions,
    json: Json = False,
) -> None:
    """Write the learned state with its offsets to FILE, for `headstart verify --snapshot FILE`.

    Example: headstart thresholds snapshot nightly.gz
    """
    from replay.files.output import check_ending
    from replay.log.live_table import read_whole_table
    from replay.log.snapshots import Snapshot, write_snapshot
    from topics.epoch import read_minted_epoch

    claim_outputs(file, json=json)
    check_ending(file, "gzip")
    settings = options.read()

    async def run() -> Snapshot:
        epoch, _partitions = await read_minted_epoch(settings.kafka)
        partitions = await read_whole_table(settings.kafka, epoch)
        rows = {number: each.rows for number, each in partitions.items()}
        return Snapshot(epoch.number, settings.learner, rows)

    taken = asyncio.run(run())
    if not any(taken.partitions.values()):
        raise LookupError(f"the table has no rows yet; {file} is not written")
    rows = write_snapshot(file, taken)
    if json:
        show_json({"file": file, "rows": rows})
    else:
        echo(f"{rows} rows written to {file}")


def _cell(value: Any) -> Any:
    return f"{value:.4f}" if isinstance(value, float) else value
