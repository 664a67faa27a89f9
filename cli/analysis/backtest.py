"""`headstart backtest`: what other policies would have saved."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.options import Data, Json, Kafka, Postgres
from cli.support.output import claim_outputs, say, show_json, show_table
from cli.support.progress import Bar
from cli.support.source_options import (
    Cost,
    CostScale,
    DomainOnly,
    FromOffset,
    Gain,
    GainScale,
    Include,
    Levels,
    Processes,
    Since,
    Source,
    TenantOnly,
    ToOffset,
    Until,
    WorkflowOnly,
    assumed,
    open_source,
    reading_of,
    span,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replay.execution.runner import Backtest
    from replay.sources.base import ReadOptions

COLUMNS = (
    "policy", "earned", "interval", "of best", "against", "hits", "misses", "right", "recall",
    "in band", "turns", "settled",
)  # fmt: skip


Outcomes = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Judged predictions, JSONL or CSV, in their order; -: stdin."
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(help="A policy, with parameters if need be; repeat for more [default: all]."),
]
More = Annotated[list[str] | None, typer.Argument(metavar="[POLICY]...", help="More policies.")]
Grid = Annotated[
    list[str] | None, typer.Option(help="Settings to try: 'ema:alpha=.05..0.5x8'; repeat.")
]
ThresholdsOut = Annotated[
    Path | None, typer.Option(help="Directory for POLICY.jsonl: a threshold per outcome.")
]
Html = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write the report to this file; -: stdout.")
]
Csv = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write a line per policy and context to this file."),
]
Resume = Annotated[Path | None, typer.Option(help="Keep what is finished here, and go on from it.")]


def backtest(
    outcomes: Outcomes = None,
    policy: Policies = None,
    more: More = None,
    grid: Grid = None,
    source: Source = "broker",
    since: Since = None,
    until: Until = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    tenant: TenantOnly = None,
    workflow_type: WorkflowOnly = None,
    domain: DomainOnly = None,
    levels: Levels = None,
    gain: Gain = None,
    cost: Cost = None,
    include: Include = None,
    gain_scale: GainScale = None,
    cost_scale: CostScale = None,
    thresholds_out: ThresholdsOut = None,
    html: Html = None,
    csv: Csv = None,
    resume: Resume = None,
    processes: Processes = None,
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
    of the context may be missing; "workflow_id" and "speculated" may be added, and "not_startable"
    (a reason) where no threshold could have started the call. A line of POLICY.jsonl is what was
    in force before that line's outcome, for its gain and cost: {"threshold": t, "level": path}.

    Examples: headstart backtest --outcomes o.jsonl --policy default --policy fixed:0.8;
    headstart backtest --since 3d --tenant acme --html report.html;
    headstart backtest --source log.jsonl.zst hops --grid 'ema:alpha=.05..0.5x8' --cost-scale 2
    """
    from settings import read_settings

    claim_outputs(html, csv, inputs=[outcomes or source, resume], json=json)
    _check_places(thresholds_out, resume, outcomes or source)
    settings = read_settings(kafka=kafka, postgres=postgres, data=data)
    if outcomes and levels is None:
        levels = "domain,user_id"
    part = span(since, until, from_offset, to_offset, now := _now(resume))
    reading = reading_of(settings, levels, part, tenant, workflow_type, domain)
    reading = replace(reading, assumed=assumed(gain, cost, include))
    reading = _scaled(reading, gain_scale, cost_scale)
    history = open_source(outcomes or source, reading, settings, outcomes=bool(outcomes))
    names, begun = [*(policy or []), *(more or [])], round(now.timestamp() * 1000)
    work = _work(history, names, grid or [], thresholds_out, suggest=outcomes is not None)
    found = _run(replace(work, begun=begun), resume, processes)
    _warn_of_scales(found, reading)
    _show(found, html, csv, json=json)


def _warn_of_scales(found: dict[str, Any], reading: ReadOptions) -> None:
    for tool in sorted(reading.scales.named.difference(found["read"]["scaled"])):
        found["read"]["warnings"].append(f"{tool}: scaled, but no prediction is of such a tool")


def _check_places(thresholds_out: Path | None, resume: Path | None, source: str) -> None:
    from replay.files.output import OutputIsInput, check_folder, check_output

    if thresholds_out is not None:
        check_folder(thresholds_out)
    if resume is not None:
        try:
            check_output(resume, [source])
        except OutputIsInput as error:
            raise OutputIsInput(
                f"{resume}: not written by --resume, but the input; name another file"
            ) from error


def _now(resume: Path | None) -> datetime:
    """Return from when times ago are counted: where a run goes on, from when it began."""
    from replay.execution.resume_file import begun

    at = None if resume is None else begun(resume)
    then = datetime.fromtimestamp((time.time_ns() // 1_000_000 if at is None else at) / 1000, UTC)
    if at is not None:
        say(f"{resume}: goes on with what began at {then:%Y-%m-%d %H:%M:%S} UTC")
    return then


def _scaled(reading: Any, gain: Sequence[str] | None, cost: Sequence[str] | None) -> Any:
    from replay.predictions.what_if import read_scales

    return replace(reading, scales=read_scales(gain or [], cost or []))


def _work(
    history: Any, names: Sequence[str], grid: Sequence[str], out: Path | None, *, suggest: bool
) -> Backtest:
    from learners.registry import POLICIES
    from replay.execution.runner import Backtest, named
    from replay.predictions.policy_grid import chosen

    policies = named(chosen(names, grid) or list(POLICIES))
    return Backtest(history, policies, suggest=suggest, thresholds_out=out)


def _run(work: Backtest, resume: Path | None, processes: int | None) -> dict[str, Any]:
    from replay.execution.runner import run_backtest
    from replay.results.summary import report

    with Bar(resume) as bar:
        units = run_backtest(work, bar, processes=processes, resume=resume)
    return report(work.history.name, work.policies, units, chosen=work.history.reading.chosen)


def _show(found: dict[str, Any], html: str | None, csv: str | None, *, json: bool) -> None:
    _say_what_was_read(found)
    if html is not None:
        from replay.results.page import write_page

        write_page(html, found)
        say(f"{html}: open it in a browser")
    if csv is not None:
        from replay.results.csv import write_csv

        write_csv(csv, found)
        say(f"{csv}: a line per policy and context")
    if json:
        show_json(found)
        return
    columns = [_heading(name, found) for name in COLUMNS]
    show_table(columns, [_row(name, each, found) for name, each in found["policies"].items()])
    say(found["conclusion"])


def _heading(name: str, found: Mapping[str, Any]) -> str:
    """Return a column's name; where what it says is in part assumed, or left out, so it says."""
    if name == "earned" and found["assumptions"]:
        return "earned (assumed)"
    if name == "policy" and (count := found["not_startable"]["guesses"]):
        return f"policy (without {count} not startable)"
    return name


def _say_what_was_read(found: Mapping[str, Any]) -> None:
    from replay.predictions.unjoined import skipped
    from replay.results.summary import caveats

    read = found["read"]
    for warning in read["warnings"]:
        say(warning)
    for reason in read["named"][:5]:
        say(f"skipped: {reason}")
    if read["refused"] > 5 or (read["refused"] and read.get("whole_log")):
        say(skipped(read))
    if not found["outcomes"] and not found["not_startable"]["guesses"]:
        if not read["records"]:
            raise LookupError(
                f"{found['source']} holds no records in the range; --since takes 2h, 3d or a date"
            )
        raise LookupError(
            f"{found['source']}: {read['events'] or read['records']} events, but no judged "
            "prediction among them"
            + (f" ({read['filtered']} filtered out)" if read["filtered"] else "")
            + (
                f". {read['refused']} refused; the first: {read['named'][0]}. Fix them, or leave "
                "id, tenant and timestamp out of a file to have them filled in"
                if read["refused"]
                else ""
            )
            + "".join(f". {sentence}" for sentence in caveats(found))
        )
    if found["contexts_beyond_limit"]:
        say(f"{found['contexts_beyond_limit']} predictions of contexts beyond the limit were "
            "judged by the level above")  # fmt: skip


def _row(name: str, figures: Mapping[str, Any], found: Mapping[str, Any]) -> list[Any]:
    from replay.results.summary import amount

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
