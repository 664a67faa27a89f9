"""`headstart replay`: relearns thresholds from part of the log, without touching live ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.option_groups import Only
from cli.support.options import Json, Limit, SettingOptions
from cli.support.output import claim_outputs, echo, show_json, show_table
from cli.support.source_options import HistoryOptions, open_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.predictions.notes import Notes
    from topics.schema.json_schema import PublishedThreshold

ThresholdsOut = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write every threshold to this file, JSONL.")
]

ReplayHistory = Annotated[
    HistoryOptions,
    Only(
        "source", "since", "until", "from_offset", "to_offset", "tenant", "workflow_type", "domain",
        "levels", "processes",
    ),
]  # fmt: skip


def replay(
    thresholds_out: ThresholdsOut = None,
    limit: Limit = 20,
    *,
    history: ReplayHistory,
    options: Annotated[
        SettingOptions, Only("kafka", "kafka_config", "postgres", "learner", "data")
    ],
    json: Json = False,
) -> None:
    """Relearn thresholds from the log, with the workers' own core, and print them.

    Starts without state at the first record of the range. Duplicates and refused events are
    treated as by workers; no offset is committed, and no topic or table is written. With --json,
    `read` counts the whole log, whatever is filtered: `unmatched` completions have no open start
    before them, `unresolved` starts no completion within an hour or by the end. How many of the
    `unmatched` were not guessed at all is not known here; backtest counts them.

    Examples: headstart replay --learner td --since 1d; headstart replay --source log.jsonl.zst
    --thresholds-out thresholds.jsonl --json
    """
    from replay.predictions.policy_grid import check
    from replay.rebuild.relearn import relearn
    from settings import rules_of

    if options.learner is not None:
        check(options.learner)
    claim_outputs(thresholds_out, inputs=[history.source], json=json)
    settings = options.read()
    # Learning from a log with a hole in it gives thresholds that no worker ever had.
    reading = replace(history.read_options(settings), whole=True)
    source = open_source(history.source, reading, settings)
    rules = replace(rules_of(settings), levels=reading.levels)
    found, notes = relearn(source, rules, echo, history.processes)
    for line in (*notes.warnings, *(f"skipped: {reason}" for reason in notes.named[:5])):
        echo(line)
    if not found:
        matches = f" matches{given}" if (given := reading.chosen.options) else ""
        raise LookupError(
            f"{source.name}: {notes.events} events, but no outcome among them{matches}"
        )
    if thresholds_out is not None:
        _write(thresholds_out, found, history.source)
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

    from replay.rebuild.relearn import COUNTED

    if json:
        read = {name: getattr(notes, name) for name in COUNTED}
        shown = [msgspec.to_builtins(each) for each in found[:limit]]
        show_json({"learner": learner, "contexts": len(found), "read": read, "thresholds": shown})
        return
    show_table(
        ("tenant", "path", "speculate", "suggest", "outcomes"),
        [
            (each.tenant, each.path, f"{each.speculate:.4f}", f"{each.suggest:.4f}", each.outcomes)
            for each in found[:limit]
        ],
    )
    echo(f"{len(found)} contexts, {notes.predictions} outcomes of {notes.events} events")
