"""`headstart replay`: thresholds learned anew from a piece of the log, beside the live ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.options import Data, Json, Kafka, Learner, Limit, Postgres
from cli.support.output import claim_outputs, say, show_json, show_table
from cli.support.source_options import (
    DomainOnly,
    FromOffset,
    Levels,
    Processes,
    Since,
    Source,
    TenantOnly,
    ToOffset,
    Until,
    WorkflowOnly,
    open_source,
    reading_of,
    span,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.predictions.notes import Notes
    from topics.schema.json_schema import PublishedThreshold

ThresholdsOut = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write every threshold to this file, JSONL.")
]


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
    thresholds_out: ThresholdsOut = None,
    limit: Limit = 20,
    processes: Processes = None,
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
    from replay.predictions.policy_grid import check
    from replay.rebuild.relearn import relearn
    from settings import read_settings, rules_of

    if learner is not None:
        check(learner)
    claim_outputs(thresholds_out, inputs=[source], json=json)
    settings = read_settings(kafka=kafka, postgres=postgres, learner=learner, data=data)
    part = span(since, until, from_offset, to_offset)
    reading = reading_of(settings, levels, part, tenant, workflow_type, domain)
    reading = replace(reading, whole=True)  # no learner ever learned from a log with a hole in it
    history = open_source(source, reading, settings)
    rules = replace(rules_of(settings), levels=reading.levels)
    found, notes = relearn(history, rules, say, processes)
    for line in (*notes.warnings, *(f"skipped: {reason}" for reason in notes.named[:5])):
        say(line)
    if not found:
        raise LookupError(f"{history.name}: {notes.events} events, but no outcome among them")
    if thresholds_out is not None:
        _write(thresholds_out, found, source)
    _show(settings.learner, found, notes, limit, json=json)


def _write(file: str, found: Sequence[PublishedThreshold], source: str) -> None:
    import msgspec

    from replay.files.output import output_file

    with output_file(file, [source]) as lines:
        lines.writelines(msgspec.json.encode(each) + b"\n" for each in found)


def _show(
    learner: str, found: Sequence[PublishedThreshold], notes: Notes, limit: int, *, json: bool
) -> None:
    import msgspec

    if json:
        shown = [msgspec.to_builtins(each) for each in found[:limit]]
        show_json(
            {"learner": learner, "contexts": len(found), "read": vars(notes), "thresholds": shown}
        )
        return
    show_table(
        ("tenant", "path", "speculate", "suggest", "outcomes"),
        [
            (each.tenant, each.path, f"{each.speculate:.4f}", f"{each.suggest:.4f}", each.outcomes)
            for each in found[:limit]
        ],
    )
    say(f"{len(found)} contexts, {notes.predictions} outcomes of {notes.events} events")
