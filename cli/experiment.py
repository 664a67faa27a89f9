"""`headstart experiment`: what the arms of an A/B test earned, from the log."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import Data, Json, Kafka, Postgres
from cli.output import say, show_json, show_table
from cli.progress import Bar
from cli.sources import Since, Source, TenantOnly, Until, WorkflowOnly, open_source, span


def experiment(
    name: Annotated[str, typer.Argument(help="The experiment's name: it decides who is where.")],
    arm: Annotated[list[str], typer.Option(help="ARM=SHARE; repeat, the control first.")],
    source: Source = "broker",
    since: Since = None,
    until: Until = None,
    tenant: TenantOnly = None,
    workflow_type: WorkflowOnly = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes [default: one for each core].")
    ] = None,
    kafka: Kafka = None,
    postgres: Postgres = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Say what the arms of an experiment earned by what executors really started.

    Workflows are shared out by a stable hash of their ids (replay.experiments.arm_of), which an
    executor computes alike. The first arm is the control.

    Examples: headstart experiment bolder --arm control=50 --arm bolder=50 --since 7d;
    headstart experiment bolder --arm control=90 --arm bolder=10 --source log.jsonl.zst --json
    """
    from replay.experiments import assignment, outcome_of, read_arms
    from replay.histories import Reading
    from replay.joining import Filter
    from replay.judge import LIVE
    from replay.running import Backtest, run_backtest
    from replay.verdict import amount
    from settings import read_settings

    shares = read_arms(arm)
    settings = read_settings(kafka=kafka, postgres=postgres, data=data)
    reading = Reading(
        settings.levels, span(since, until, None, None), Filter(tenant, workflow_type)
    )
    history = open_source(source, reading, settings)
    if not history.live:
        raise ValueError(f"{history.name} does not say what was started; nothing can be compared")
    with Bar(None) as bar:
        units = run_backtest(Backtest(history, {"never": "never"}), bar, processes=processes)
    parts = [unit.parts[0] for unit in units]
    groups = [sum(g) for g in zip(*(part.arms[LIVE].groups for part in parts), strict=True)]
    members = [sum(m) for m in zip(*(part.members for part in parts), strict=True)]
    found = outcome_of(list(shares), assignment(name, shares), groups, members)
    if json:
        show_json({"experiment": name, "control": next(iter(shares)), "arms": found})
        return
    rows = []
    for each, figures in found.items():
        ends, apart = figures.get("difference_interval"), figures.get("difference")
        rows.append(
            (
                each,
                figures["predictions"],
                amount(figures["earned"]),
                "" if figures["per_prediction"] is None else amount(figures["per_prediction"]),
                "" if apart is None else amount(apart, sign=True),
                f"{amount(ends[0])} to {amount(ends[1])}" if ends else "",
            )
        )
    columns = ("arm", "predictions", "earned", "per prediction", "against control", "interval")
    show_table(columns, rows)
    for each, figures in found.items():
        ends = figures.get("difference_interval")
        if ends is not None:
            sure = (
                "surely more"
                if ends[0] > 0
                else "surely less"
                if ends[1] < 0
                else "no clear difference"
            )
            say(f"{each} against the control: {sure}")
