"""`headstart replay`: thresholds learned anew from a piece of the log, beside the live ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Data, Json, Kafka, Learner, Limit, Postgres
from cli.output import say, show_json, show_table
from cli.sources import (
    DomainOnly,
    FromOffset,
    Levels,
    Since,
    Source,
    TenantOnly,
    ToOffset,
    Until,
    WorkflowOnly,
    open_source,
    span,
)


def replay(
    source: Source = "broker",
    since: Since = None,
    until: Until = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    tenant: TenantOnly = None,
    workflow_type: WorkflowOnly = None,
    domain: DomainOnly = None,
    levels: Levels = None,
    thresholds_out: Annotated[
        Path | None, typer.Option(help="Write every threshold to this file, JSONL.")
    ] = None,
    limit: Limit = 20,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes [default: one for each core].")
    ] = None,
    kafka: Kafka = None,
    postgres: Postgres = None,
    learner: Learner = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Learn thresholds anew from the log, by the agent's own core, and print them.

    Begins with nothing at the first record of the range. Duplicates and refused events are treated
    as live; no offset is committed, no topic and no table written.

    Examples: headstart replay --learner td --since 1d; headstart replay --source log.jsonl.zst
    --thresholds-out thresholds.jsonl --json
    """
    import msgspec

    from replay.choices import check
    from replay.histories import Reading
    from replay.joining import Filter
    from replay.rebuilt import relearn
    from settings import read_settings

    if learner is not None:
        check(learner)
    settings = read_settings(kafka=kafka, postgres=postgres, learner=learner, data=data)
    reading = Reading(
        levels=tuple(filter(None, levels.split(","))) if levels is not None else settings.levels,
        range=span(since, until, from_offset, to_offset),
        chosen=Filter(tenant, workflow_type, domain),
    )
    history = open_source(source, reading, settings)
    found, notes = relearn(history, settings.learner, say, processes)
    for line in (*notes.warnings, *(f"skipped: {reason}" for reason in notes.named[:5])):
        say(line)
    if thresholds_out is not None:
        with thresholds_out.open("wb") as lines:
            lines.writelines(msgspec.json.encode(each) + b"\n" for each in found)
    if json:
        shown = [msgspec.to_builtins(each) for each in found[:limit]]
        show_json(
            {"learner": settings.learner, "contexts": len(found), "read": vars(notes),
             "thresholds": shown}
        )  # fmt: skip
        return
    show_table(
        ("tenant", "path", "speculate", "suggest", "outcomes"),
        [
            (each.tenant, each.path, f"{each.speculate:.4f}", f"{each.suggest:.4f}", each.outcomes)
            for each in found[:limit]
        ],
    )
    say(f"{len(found)} contexts, {notes.predictions} outcomes of {notes.events} events")
