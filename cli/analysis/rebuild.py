"""`headstart rebuild`: relearns thresholds from the log, compares them and switches over."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.option_groups import Only
from cli.support.options import Json, SettingOptions, Yes
from cli.support.output import confirm, echo, show_json, show_table
from cli.support.times import now_ms
from cli.support.unknown_names import echo_notes, notes_on_names, workflow_type_in
from cli.thresholds.republish import repair_or_report

if TYPE_CHECKING:
    from replay.rebuild.rebuild import TableComparison, TableReplacement
    from settings import Settings
    from topics.control.messages import LearnerChoice

Policy = Annotated[
    str | None,
    typer.Option(help="Learn by this policy, such as td or ema:alpha=.1 [default: unchanged]."),
]
Pattern = Annotated[
    str, typer.Option(help="In these contexts: key=value parts joined by /; *: all contexts.")
]
Tenant = Annotated[str | None, typer.Option(help="Only this tenant [default: all tenants].")]
From = Annotated[
    Path | None,
    typer.Option("--snapshot", help="Start from this snapshot if retention has cut the log."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only compare, and send nothing.")]
Wait = Annotated[
    float, typer.Option(min=0.0, help="Seconds to wait for the workers; 0: do not wait.")
]


def rebuild(
    policy: Policy = None,
    pattern: Pattern = "*",
    tenant: Tenant = None,
    snapshot: From = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    wait: Wait = 300.0,
    *,
    options: Annotated[SettingOptions, Only("kafka", "kafka_config", "redis", "data", "learner")],
    json: Json = False,
) -> None:
    """Relearn thresholds from the log, and switch the workers over to the result.

    The log is replayed by the recorded policies or by another one, and the result is compared with
    the live table. After confirmation the workers switch to the new table at one offset of each
    partition; no event is lost or counted twice, and readers see the old value or the new one.
    Values in Redis with versions that the log never had are replaced too. If interrupted before the
    question, nothing has changed; afterwards, run the same command again. The settings must equal
    the workers'. Exit code 0: done, or compared; 1: failed.

    Examples: headstart rebuild --dry-run; headstart rebuild --policy td --dry-run --json;
    headstart rebuild --policy ema:alpha=.1 --pattern workflow_type=refund --tenant acme --yes
    """
    from processing.control.learner_assignments import parts
    from replay.log.snapshots import read_snapshot
    from replay.rebuild.rebuild import RebuildConfig, TableReplacement
    from settings import rules_of

    parts(pattern)
    if policy is None and (pattern != "*" or tenant is not None):
        raise typer.BadParameter(
            "--pattern and --tenant need --policy: they select where it learns"
        )
    settings = options.read()
    config = RebuildConfig(
        settings.kafka,
        rules_of(settings),
        None if policy is None else _choice(policy, pattern, tenant),
        None if snapshot is None else read_snapshot(snapshot),
    )
    rebuilding = TableReplacement(config, echo)
    found: dict[str, Any] = {"policy": config.choice and config.choice.learner, "sent": False}
    found["notes"] = notes_on_names(settings, tenant, workflow_type_in(pattern))
    echo_notes(found["notes"])

    async def run() -> None:
        compared = await rebuilding.learn()
        found.update(_described(compared))
        _show(compared, json=json)
        if dry_run:
            return
        confirm(f"Replace the table by these {compared.contexts} contexts?", yes)
        await _switch(rebuilding, settings, wait, found)

    try:
        asyncio.run(run())
    finally:
        if json and "contexts" in found:
            show_json(found)


def _choice(policy: str, pattern: str, tenant: str | None) -> LearnerChoice:
    """Return the choice of a policy. Raises `LookupError` and `ValueError` for an invalid one."""
    from headstart.events.schema import new_id
    from learners.policy import spec
    from learners.registry import policy as find
    from replay.predictions.policy_grid import check
    from topics.control.messages import LearnerChoice

    check(policy)
    now = now_ms()
    return LearnerChoice(new_id(now), now, pattern, spec(find(policy)), tenant)


async def _switch(
    rebuilding: TableReplacement, settings: Settings, wait: float, found: dict[str, Any]
) -> None:
    from headstart.events.schema import new_id

    id = new_id()
    offsets = await rebuilding.send(id)
    found.update(sent=True, id=id, offsets=offsets, taken=False)
    if wait:
        await rebuilding.wait(id, offsets, wait)
        found["taken"] = True
        echo(f"the workers continue from {found['contexts']} rebuilt contexts")
        found["redis_repaired"] = await _repair(settings)
    else:
        echo(f"sent to {len(offsets)} partitions of {settings.kafka}")


async def _repair(settings: Settings) -> int | None:
    """Replace values in Redis with versions newer than the rebuilt table's, which it kept."""
    from replay.log.live_table import read_whole_table
    from topics.epoch import read_epoch

    epoch = await read_epoch(settings.kafka)
    return await repair_or_report(settings, epoch, await read_whole_table(settings.kafka, epoch))


def _described(compared: TableComparison) -> dict[str, Any]:
    return {
        "partitions": compared.partitions,
        "contexts": compared.contexts,
        "rows": compared.rows,
        "counts": dict(compared.findings.counts),
        "named": compared.findings.named,
        "moved": compared.changes.count,
        "moves": compared.changes.shown(),
    }


def _show(compared: TableComparison, *, json: bool) -> None:
    for each in compared.findings.named[:10]:
        echo(", ".join(f"{name} {value}" for name, value in each.items()))
    counts = ", ".join(f"{count} {name}" for name, count in compared.findings.counts.items())
    echo(f"{compared.rows} rows rebuilt, of {compared.contexts} contexts; {counts or 'all agree'}")
    if json or not compared.changes.count:
        return
    show_table(
        ("tenant", "path", "speculate", "rebuilt", "outcomes", "learner"),
        [
            (each.tenant, each.path, _shown(each.before), _shown(each.after), each.outcomes,
             each.learner)
            for each in compared.changes.largest
        ],
    )  # fmt: skip
    kept = len(compared.changes.largest)
    echo(f"{compared.changes.count} thresholds change; the {kept} largest changes are listed")


def _shown(threshold: float | None) -> str:
    return "none" if threshold is None else f"{threshold:.4f}"
