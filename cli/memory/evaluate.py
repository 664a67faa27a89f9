"""`headstart memory evaluate`: whether a memory helps, on recorded runs, a log or episodes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.support.option_groups import Only
from cli.support.options import Json, KafkaPostgresOptions
from cli.support.output import claim_outputs, echo, show_json
from cli.support.progress import Bar
from cli.support.source_options import HistoryOptions

Runs = Annotated[
    str | None,
    typer.Option("--runs", metavar="FILE", help="Recorded runs with arguments, JSONL; -: stdin."),
]
Source = Annotated[
    str | None,
    typer.Option(
        help="broker, archive (events in Postgres), memory (episodes in Postgres), or a file: "
        "export, events, episodes of `memory export`; -: standard input [default: broker]."
    ),
]
Newest = Annotated[
    int, typer.Option(min=1, help="Runs of each tenant that are evaluated, the newest ones.")
]
Processes = Annotated[
    int | None,
    typer.Option("--processes", "--jobs", min=1, help="Processes [default: one for each core]."),
]
Report = Annotated[
    str | None,
    typer.Option(
        "--html", "--report", "--out", metavar="FILE", help="Write a report as HTML to this file."
    ),
]
Range = Annotated[
    HistoryOptions, Only("since", "until", "from_offset", "to_offset", "tenant", "workflow_type")
]


def evaluate(
    runs: Runs = None,
    source: Source = None,
    newest: Newest = 5_000,
    processes: Processes = None,
    report: Report = None,
    *,
    history: Range,
    options: KafkaPostgresOptions,
    json: Json = False,
) -> None:
    """Evaluate the memory on recorded runs, a log or episodes, beside the rules of others.

    One pass over the runs in the order of time: each run is asked for, then learned. `requests` is
    what agents get before the first call, by the policy that the worker would have trained so far;
    the other methods answer after it. Three times: with all earlier runs as cases, without those of
    the own task, and without those with an equal first call either. Each tenant is evaluated alone.

    Examples: headstart memory evaluate --runs runs.jsonl --html report.html;
    headstart memory evaluate --tenant acme --since 30d --json;
    headstart memory evaluate --source memory.jsonl.zst --processes 1
    """
    if runs is not None and (source is not None or history != HistoryOptions()):
        raise typer.BadParameter(
            "--source, --tenant and options of a range are for logs and episodes; leave out --runs"
        )
    if runs is not None:
        claim_outputs(report, inputs=[runs], json=json)
        result = _of_runs(runs, processes)
    else:
        from cli.memory.evaluated_history import MEMORY, evaluate_history

        source = source or "broker"
        files = [] if source in {"broker", "archive", MEMORY} else [source]
        claim_outputs(report, inputs=files, json=json)
        settings = options.read()
        result = evaluate_history(
            source, history.read_options(settings), settings, newest, processes
        )
    if report is not None:
        from replay.memories.page import write_memory_report

        write_memory_report(report, result)
        echo(f"{report}: open it in a browser")
    if json:
        show_json(result)
    else:
        from cli.memory.evaluation_tables import show_results

        show_results(result)


def _of_runs(runs: str, processes: int | None) -> dict[str, Any]:
    """Return the results of a file of recorded runs."""
    from replay.evaluation.runs_file import read_recorded_runs
    from replay.files.input import local_file
    from replay.memories.evaluation import evaluate as run
    from replay.memories.evaluation import sizes_of
    from replay.memories.results import results
    from replay.memories.run_cases import RunCases, cases_of

    file = local_file(runs)
    found = read_recorded_runs(file)
    for line in found.refused[:5]:
        echo(f"refused: {line}")
    if found.refused:
        echo(f"{len(found.runs)} runs accepted, {len(found.refused)} lines refused")
    cases = cases_of(found.runs)
    with Bar(None, unit="runs", resumable=False) as bar:
        ((_, figures),) = run(RunCases(file), {"": sizes_of(cases)}, bar, processes)
    refused = {"refused": len(found.refused), "named": found.refused[:5]}
    return results(runs, cases, figures) | {"without_call": len(found.runs) - len(cases)} | refused
