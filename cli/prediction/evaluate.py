"""`headstart predict evaluate`: how often predictors are right on recorded runs, what it saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.prediction.evaluation_plan import (
    chosen_predictors,
    evaluation_plan,
    sharing_assumptions,
)
from cli.support.options import Json
from cli.support.output import claim_outputs, counted, echo, percent, show_json, show_table
from cli.support.progress import Bar

if TYPE_CHECKING:
    from replay.evaluation.runs_file import RunsOfFile

Runs = Annotated[
    str,
    typer.Option("--runs", metavar="FILE", help="Recorded runs with arguments, JSONL; -: stdin."),
]
Predictors = Annotated[
    list[str] | None,
    typer.Option(
        "--predictor",
        metavar="NAME",
        help="headstart, back_off, pattern, names_only, literal, or MODULE:FUNCTION of yours; "
        "repeatable, the first is compared with the others [default: all five].",
    ),
]
Executors = Annotated[
    int | None,
    typer.Option(
        min=2, max=64, metavar="N",
        help="Evaluate N executors instead: sharing what they learn, with and without local "
        "learning, each alone, and with one state that is always fresh.",
    ),
]  # fmt: skip
Seeds = Annotated[int, typer.Option(min=1, help="How many orders of the runs to evaluate on.")]
FirstSeed = Annotated[int, typer.Option(help="The first seed.")]
Quick = Annotated[bool, typer.Option("--quick", help="One seed.")]
CostRatio = Annotated[
    list[float] | None,
    typer.Option(
        min=0.01, max=0.99, help="cost / (cost + gain) of a guess; repeatable [default: .5, .7]."
    ),
]
ReadOnly = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAMES",
        help="Read-only tools, A,B,C or a file with one a line [default: by their names].",
    ),
]
LatencyOption = Annotated[
    str,
    typer.Option(
        help="recorded, declared, or auto: recorded if every call has both times and they take any."
    ),
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes [default: one for each core].")]
Report = Annotated[
    str | None,
    typer.Option(
        "--report", "--html", "--out", metavar="FILE", help="Write a report as HTML to this file."
    ),
]


def evaluate(
    runs: Runs,
    predictor: Predictors = None,
    executors: Executors = None,
    seeds: Seeds = 5,
    first_seed: FirstSeed = 0,
    quick: Quick = False,
    cost_ratio: CostRatio = None,
    read_only: ReadOnly = None,
    latency: LatencyOption = "auto",
    jobs: Jobs = None,
    report: Report = None,
    json: Json = False,
) -> None:
    """Evaluate predictors of the next tool call, with its arguments, on recorded runs.

    One pass over the runs in the order of each seed, a new predictor for each domain: every
    decision of the model is guessed first and learned afterwards. Figures are means over the
    seeds; net time rests on the latencies that the last lines name.

    Examples: headstart predict evaluate --runs runs.jsonl --report report.html;
    headstart predict evaluate --runs runs.jsonl --quick --predictor headstart --json;
    headstart predict evaluate --runs runs.jsonl --predictor my_module:guess --predictor pattern;
    headstart predict evaluate --runs runs.jsonl --executors 8 --quick
    """
    from replay.evaluation.evaluation import evaluate as run
    from replay.evaluation.results import Evaluated, results
    from replay.evaluation.runs_file import read_recorded_runs
    from replay.files.input import local_file

    claim_outputs(report, inputs=[runs, *(read_only or ())], json=json)
    file = local_file(runs)
    found = read_recorded_runs(file)
    _report_refused(found)
    chosen = chosen_predictors(predictor, executors)
    plan, assumptions = evaluation_plan(
        file, found, chosen, range(first_seed, first_seed + (1 if quick else seeds)),
        cost_ratio, read_only, latency,
    )  # fmt: skip
    assumptions += sharing_assumptions(executors)
    with Bar(None, unit="decisions", resumable=False) as bar:
        figures = run(plan, found.runs, bar, jobs)
    evaluated = Evaluated(
        runs, len(found.runs), found.calls, plan.seeds, plan.latency, assumptions, found.refused,
        found.unknown,
    )  # fmt: skip
    result = results(evaluated, figures)
    _show(result, figures, report, json=json)


def _report_refused(found: RunsOfFile) -> None:
    for line in found.refused[:5]:
        echo(f"refused: {line}")
    if found.refused:
        accepted, refused = len(found.runs), len(found.refused)
        echo(f"{counted(accepted, 'run')} accepted, {counted(refused, 'line')} refused")
    if found.unknown:
        are = "is a run" if found.unknown == 1 else "are runs"
        echo(f"{found.unknown:,} of these {are} with a call whose arguments are not known")


def _show(
    found: Mapping[str, Any],
    figures: Mapping[str, Any],
    report: str | None,
    *,
    json: bool,
) -> None:
    if report is not None:
        from replay.evaluation.page import write_evaluation

        write_evaluation(report, found, figures)
        echo(f"{report}: open it in a browser")
    if json:
        show_json(found)
        return
    ratios = list(found["net_time"])
    nets = [f"net, r = {ratio} ({found['latency']})" for ratio in ratios]
    columns = ("predictor", "name", "exact", "first 3", "covered at 85 %", "ECE", "log loss", *nets,
               "guess us", "learn us", "state KB")  # fmt: skip
    rows = {found["predictor"]: found, **found["baselines"]}
    show_table(columns, [_row(name, each, ratios) for name, each in rows.items()])
    for sentence in found["conclusion"]:
        echo(sentence)
    for sentence in found["assumptions"]:
        echo(f"assumed: {sentence}")


def _row(name: str, figures: Mapping[str, Any], ratios: Sequence[str]) -> list[Any]:
    return [
        name,
        percent(figures["name_1"]),
        percent(figures["exact_1"]),
        percent(figures["exact_3"]),
        percent(figures["covered_at_85"]),
        f"{figures['ece']:.3f}",
        f"{figures['log_loss']:.3f}",
        *(percent(figures["net_time"][ratio]["net"]) for ratio in ratios),
        f"{figures['guess_us']:.0f}",
        f"{figures['learn_us']:.0f}",
        f"{figures['state_bytes'] / 1000:,.0f}",
    ]
