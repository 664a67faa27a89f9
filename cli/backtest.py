"""`headstart backtest`: what other policies would have saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Data, Json, Kafka, Postgres
from cli.output import say, show_json, show_table
from cli.progress import Bar
from cli.sources import (
    CostScale,
    DomainOnly,
    FromOffset,
    GainScale,
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

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = (
    "policy", "earned", "interval", "of best", "against", "hits", "misses", "right", "recall",
    "in band", "turns", "settled",
)  # fmt: skip


def backtest(
    outcomes: Annotated[
        Path | None, typer.Option(help="Judged predictions, JSONL, in their order.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy, with parameters if need be; repeat for more [default: all]."),
    ] = None,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[POLICY]...", help="More policies.")
    ] = None,
    grid: Annotated[
        list[str] | None, typer.Option(help="Settings to try: 'ema:alpha=.05..0.5x8'; repeat.")
    ] = None,
    source: Source = "broker",
    since: Since = None,
    until: Until = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    tenant: TenantOnly = None,
    workflow_type: WorkflowOnly = None,
    domain: DomainOnly = None,
    levels: Levels = None,
    gain_scale: GainScale = None,
    cost_scale: CostScale = None,
    thresholds_out: Annotated[
        Path | None, typer.Option(help="Directory for POLICY.jsonl: a threshold per outcome.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write a line per policy and context to this file.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Keep what is finished here, and go on from it.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes [default: one for each core].")
    ] = None,
    kafka: Kafka = None,
    postgres: Postgres = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Say what policies would have earned on what really happened.

    Reads the log from the broker, the archive in Postgres, or a file, in order, with the feedback
    as late as it came; commits nothing, writes to no topic. --outcomes FILE is a file of judged
    predictions; a line: {"context": {"workflow_type": "refund", "domain": "retail", "user_id":
    "u7"}, "confidence": 0.8, "correct": true, "gain": 400, "cost": 600, "at": 1760000000000}; keys
    of the context may be missing; "workflow_id" and "speculated" may be added. A line of
    POLICY.jsonl is what was in force before the outcome of the same line was seen, for that line's
    gain and cost: {"threshold": t, "level": path}.

    Examples: headstart backtest --outcomes o.jsonl --policy default --policy fixed:0.8;
    headstart backtest --since 3d --tenant acme --html report.html;
    headstart backtest --source log.jsonl.zst hops --grid 'ema:alpha=.05..0.5x8' --cost-scale 2
    """
    from headstart.contexts import DEFAULT_LEVELS
    from learners.registry import POLICIES
    from replay.choices import chosen
    from replay.histories import Reading
    from replay.joining import Filter
    from replay.running import Backtest, named, run_backtest
    from replay.scales import read_scales
    from replay.verdict import report
    from settings import read_settings

    settings = read_settings(kafka=kafka, postgres=postgres, data=data)
    names = chosen([*(policy or []), *(more or [])], grid or []) or list(POLICIES)
    reading = Reading(
        levels=_levels(levels, DEFAULT_LEVELS if outcomes else settings.levels),
        range=span(since, until, from_offset, to_offset),
        chosen=Filter(tenant, workflow_type, domain),
        scales=read_scales(gain_scale or [], cost_scale or []),
    )
    history = open_source(str(outcomes) if outcomes else source, reading, settings)
    work = Backtest(
        history, named(names), suggest=outcomes is not None, thresholds_out=thresholds_out
    )
    with Bar(resume) as bar:
        units = run_backtest(work, bar, processes=processes, resume=resume)
    found = report(history.name, work.policies, units)
    _say_what_was_read(found)
    if html is not None:
        from replay.page import write_page

        write_page(html, found)
        say(f"{html}: open it in a browser")
    if csv is not None:
        from replay.tables import write_csv

        write_csv(csv, found)
        say(f"{csv}: a line per policy and context")
    if json:
        show_json(found)
        return
    show_table(COLUMNS, [_row(name, each, found) for name, each in found["policies"].items()])
    say(found["conclusion"])


def _levels(given: str | None, standard: tuple[str, ...]) -> tuple[str, ...]:
    return standard if given is None else tuple(key for key in given.split(",") if key)


def _say_what_was_read(found: Mapping[str, Any]) -> None:
    read = found["read"]
    if not found["outcomes"]:
        raise LookupError(
            f"{found['source']}: {read['events'] or read['records']} events, but no judged "
            "prediction among them"
            + (f" ({read['filtered']} filtered out)" if read["filtered"] else "")
        )
    for warning in read["warnings"]:
        say(warning)
    for reason in read["named"][:5]:
        say(f"skipped: {reason}")
    if read["refused"] > 5:
        say(f"skipped: {read['refused']} in all")
    if found["contexts_beyond_limit"]:
        say(f"{found['contexts_beyond_limit']} predictions of contexts beyond the limit were "
            "judged by the level above")  # fmt: skip


def _row(name: str, figures: Mapping[str, Any], found: Mapping[str, Any]) -> list[Any]:
    from replay.verdict import amount

    ends = figures["interval"]
    return [
        name,
        amount(figures["utility"]),
        f"{amount(ends[0])} to {amount(ends[1])}" if ends else "",
        _percent(figures["share_of_best_fixed"]),
        f"{amount(figures['difference'], sign=True)} vs {found['against']}",
        figures["hits"],
        figures["misses"],
        _percent(figures["success_rate"]),
        _percent(figures["recall"]),
        _percent(figures["time_in_band"]),
        figures["oscillations"],
        "" if figures["convergence"] is None else f"{figures['convergence']:g}",
    ]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
