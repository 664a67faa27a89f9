"""`headstart experiment`: compares the arms of an A/B test from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.option_groups import Only
from cli.support.options import Json, KafkaPostgresOptions
from cli.support.output import echo, show_json, show_table
from cli.support.progress import Bar
from cli.support.source_options import HistoryOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replay.sources.base import PredictionSource

ExperimentHistory = Annotated[
    HistoryOptions,
    Only(
        "source", "since", "until", "tenant", "workflow_type", "gain", "cost", "processes",
    ),
]  # fmt: skip


def experiment(
    name: Annotated[
        str, typer.Argument(help="The experiment's name, which determines the assignment.")
    ],
    arm: Annotated[list[str], typer.Option(help="ARM=SHARE; repeatable, the control first.")],
    *,
    history: ExperimentHistory,
    options: KafkaPostgresOptions,
    json: Json = False,
) -> None:
    """Compare what the arms of an experiment earned with the calls executors started.

    Workflows are assigned to arms by a stable hash of their ids, as in executors
    (headstart.arm_of); the order of the arms has no influence on it. The first arm is the control,
    which the others are compared with.

    Examples: headstart experiment bolder --arm control=50 --arm bolder=50 --since 7d;
    headstart experiment bolder --arm control=90 --arm bolder=10 --source log.jsonl.zst --json
    """
    from replay.results.experiments import read_arms

    shares = read_arms(arm)
    settings = options.read()
    source = history.open(settings)
    if not source.live:
        raise ValueError(
            f"{source.name} does not record which calls were started, so arms cannot be compared"
        )
    found, apart = _earned(name, shares, source, history.processes)
    if json:
        control = next(iter(shares))
        show_json({"experiment": name, "control": control, "arms": found, **apart})
    else:
        _show(found, apart)


def _earned(
    name: str, shares: Mapping[str, float], history: PredictionSource, processes: int | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the arms earned with the calls that were started, and what is not counted."""
    from headstart.experiments import assignment
    from replay.engine.engine import LIVE
    from replay.execution.runner import Backtest, run_backtest
    from replay.results.conclusion import caveats
    from replay.results.experiments import outcome_of
    from replay.results.summary import report

    with Bar(None) as bar:
        units = run_backtest(Backtest(history, {"never": "never"}), bar, processes=processes)
    for unit in units:
        for warning in unit.notes.warnings:
            echo(warning)
    parts = [unit.parts[0] for unit in units]
    if not any(part.unsure.get(LIVE) for part in parts):
        # Only guesses that were started count here, and all of these have their gain or cost.
        for unit in units:
            unit.unpriced, unit.unpriced_misses, unit.estimated = 0, 0, []
    groups = [sum(g) for g in zip(*(part.arms[LIVE].groups for part in parts), strict=True)]
    members = [sum(m) for m in zip(*(part.members for part in parts), strict=True)]
    summary = report(history.name, {"never": "never"}, units, chosen=history.reading.chosen)
    names = ("not_startable", "unpriced", "unpriced_misses", "estimated", "assumptions")
    apart = {each: summary[each] for each in names}
    if not any(members):
        why = f" that matches{given}" if (given := history.reading.chosen.options) else ""
        why += "".join(f". {sentence.removesuffix('.')}" for sentence in caveats(summary))
        raise LookupError(f"{history.name}: no judged prediction was found there{why}")
    return outcome_of(list(shares), assignment(name, shares), groups, members), apart


def _show(found: Mapping[str, Any], left_out: Mapping[str, Any]) -> None:
    from replay.results.conclusion import amount, caveats, remark

    rows = []
    for name, figures in found.items():
        ends, apart = figures.get("difference_interval"), figures.get("difference")
        rows.append(
            (
                name,
                figures["predictions"],
                amount(figures["earned"]),
                "" if figures["per_prediction"] is None else amount(figures["per_prediction"]),
                "" if apart is None else amount(apart, sign=True),
                f"{amount(ends[0])} to {amount(ends[1])}" if ends else "",
            )
        )
    columns = (
        "arm",
        "predictions",
        f"earned{remark(left_out)}",
        "per prediction",
        "against control",
        "interval",
    )
    show_table(columns, rows)
    for name, figures in found.items():
        if ends := figures.get("difference_interval"):
            echo(f"{name} against the control: {_sure(ends)}{_if(left_out)}")
    for sentence in caveats(left_out):
        echo(sentence)


def _if(left_out: Mapping[str, Any]) -> str:
    """Return what the comparison of arms depends on; "" where all is recorded."""
    if left_out["estimated"]["guesses"]:
        return ", if the estimates hold"
    return ", if the guesses that count as 0 ms were worth no more" if left_out["unpriced"] else ""


def _sure(ends: list[float]) -> str:
    if ends[0] > 0.0:
        return "surely more"
    return "surely less" if ends[1] < 0.0 else "no clear difference"
