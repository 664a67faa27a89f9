"""`headstart memory evaluate`: whether a memory helps, on recorded runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from cli.support.options import Json
from cli.support.output import claim_outputs, echo, percent, show_json, show_table
from cli.support.progress import Bar

_LABELS: Final = {
    "all": "all", "new_tasks": "own task left out", "new_situations": "nor an equal first call",
}  # fmt: skip

Runs = Annotated[
    str,
    typer.Option("--runs", metavar="FILE", help="Recorded runs with arguments, JSONL; -: stdin."),
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


def evaluate(
    runs: Runs, processes: Processes = None, report: Report = None, json: Json = False
) -> None:
    """Evaluate the memory on recorded runs, beside simple rules and those of other memories.

    One pass over the runs in the order of time: after its first call each run is asked for, then
    learned. Twice: with all earlier runs as cases, and with those of the own task left out.

    Examples: headstart memory evaluate --runs runs.jsonl;
    headstart memory evaluate --runs runs.jsonl --html report.html;
    headstart memory evaluate --runs runs.jsonl --processes 1 --json
    """
    from replay.evaluation.runs_file import read_recorded_runs
    from replay.files.input import local_file
    from replay.memories.evaluation import evaluate as run
    from replay.memories.results import results
    from replay.memories.run_cases import cases_of

    claim_outputs(report, inputs=[runs], json=json)
    file = local_file(runs)
    found = read_recorded_runs(file)
    for line in found.refused[:5]:
        echo(f"refused: {line}")
    if found.refused:
        echo(f"{len(found.runs)} runs accepted, {len(found.refused)} lines refused")
    cases = cases_of(found.runs)
    with Bar(None, unit="runs", resumable=False) as bar:
        figures = run(file, cases, bar, processes)
    result = results(runs, cases, found, figures)
    if report is not None:
        from replay.memories.page import write_memory_report

        write_memory_report(report, result)
        echo(f"{report}: open it in a browser")
    if json:
        show_json(result)
    else:
        _show(result)


def _show(found: Mapping[str, Any]) -> None:
    columns = ("cases", "method", "exact", "next tool", "edit", "against typical", "interval",
               "set F1", "hit of 4", "success AUC")  # fmt: skip
    show_table(
        columns,
        [
            [label, name, *_cells(figures)]
            for key, label in _LABELS.items()
            for name, figures in found[key].items()
        ],
    )
    for sentence in found["conclusion"]:
        echo(sentence)
    for sentence in found["assumptions"]:
        echo(f"assumed: {sentence}")


def _cells(figures: Mapping[str, Any]) -> list[str]:
    ends = figures["delta_edit_interval"]
    return [
        percent(figures["exact"]),
        percent(figures["next"]),
        _number(figures["edit"]),
        _number(figures["delta_edit"], "+.3f"),
        "" if ends is None else f"{ends[0]:+.3f} {ends[1]:+.3f}",
        _number(figures["set_f1"]),
        percent(figures["hit_rate"]),
        _number(figures["success_auc"]),
    ]


def _number(value: float | None, form: str = ".3f") -> str:
    return "" if value is None else format(value, form)
