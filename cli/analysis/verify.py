"""`headstart verify`: replays the log and compares the result with the live system."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.options import Json, LearnerOptions
from cli.support.output import echo, show_json, show_table
from cli.support.targets import require_own_log

if TYPE_CHECKING:
    from replay.verify.verify import Verified
    from settings import Settings


def verify(
    snapshot: Annotated[
        Path | None, typer.Option(help="Start from this snapshot if retention has cut the log.")
    ] = None,
    reference: Annotated[
        bool,
        typer.Option(
            help="Replay without the compiled kernels that workers use: slower, and independent of "
            "them."
        ),
    ] = False,
    purged: Annotated[
        bool,
        typer.Option("--purged", help="Only check that nothing of what was purged is left."),
    ] = False,
    caught_up: Annotated[
        bool,
        typer.Option(
            "--caught-up", help="Fail also where workers have not yet processed all of the log."
        ),
    ] = False,
    *,
    options: LearnerOptions,
    json: Json = False,
) -> None:
    """Replay the log through the learner and compare with the table, Redis and Postgres.

    Rows are compared bit by bit; missing, extra and differing ones are listed. Events that workers
    have not processed yet cannot be compared: it counts those that were in the log when it began.
    Exit code 0: all agree; 1: they do not, or `--caught-up` and some are left. It only reads, and
    joins no consumer group. `--purged` looks for purged events in Postgres, for purged contexts and
    old marks of them in Redis and headstart.thresholds, and counts what the log still has.

    Examples: headstart verify --caught-up; headstart verify --purged; headstart verify --snapshot
    nightly.gz --json, where the log is cut and `headstart thresholds snapshot nightly.gz` was run
    in time.
    """
    from replay.log.snapshots import read_snapshot
    from replay.verify.verify import VerifyConfig
    from replay.verify.verify import verify as run
    from settings import rules_of

    reading = options.load()
    settings = reading.settings
    if purged:
        _purged(settings, json=json)
        return
    config = VerifyConfig(
        kafka=settings.kafka,
        postgres=settings.postgres,
        redis=settings.redis,
        rules=rules_of(settings),
        snapshot=read_snapshot(snapshot) if snapshot else None,
        reference=reference,
    )
    asyncio.run(require_own_log(reading))
    found = asyncio.run(run(config, echo))
    _show(found, json=json)
    if not found.findings.ok or (caught_up and found.left.events):
        raise typer.Exit(1)


def _purged(settings: Settings, *, json: bool) -> None:
    from cli.memory.purge import purge_services
    from replay.verify.purged import check_purged

    check = asyncio.run(check_purged(purge_services(settings), settings.redis))
    findings = check.findings
    for each in findings.named:
        echo(", ".join(f"{name} {value}" for name, value in each.items()))
    figures = {
        "purges": check.purges,
        "covered_events": check.covered_events,
        "covered_bytes": check.covered_bytes,
    }
    if json:
        show_json({**figures, "ok": findings.ok, "counts": dict(findings.counts),
                   "named": findings.named})  # fmt: skip
    else:
        show_table(("what", "count"), [*figures.items(), *findings.counts.items()])
        echo("nothing is left outside the log" if findings.ok else "something is left: see above")
    if not findings.ok:
        raise typer.Exit(1)


def _show(found: Verified, *, json: bool) -> None:
    counts = dict(found.findings.counts)
    for each in found.findings.named:
        echo(", ".join(f"{name} {value}" for name, value in each.items()))
    figures = {
        "partitions": found.partitions,
        "records": found.records,
        "events": found.events,
        "rows": found.rows,
    }
    if json:
        left = {"left": dict(found.left.events), "left_more": found.left.more}
        show_json(
            {
                **figures,
                "ok": found.findings.ok,
                **left,
                "counts": counts,
                "named": found.findings.named,
            }
        )
    else:
        show_table(("what", "count"), [*figures.items(), *counts.items()])
        echo(_conclusion(found))


def _conclusion(found: Verified) -> str:
    agrees = "what was compared agrees" if found.left.events else "everything agrees"
    said = agrees if found.findings.ok else "they do not agree: see above"
    if not found.left.events:
        return said
    return (
        f"{said}. Not compared: {found.left}; `headstart status` shows whether workers run and how "
        "far they are"
    )
