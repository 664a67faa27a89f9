"""`headstart backtest`: compares policies on recorded predictions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.options import Json, KafkaPostgresOptions
from cli.support.output import claim_outputs, echo, percent, show_json, show_table
from cli.support.progress import Bar
from cli.support.source_options import HistoryOptions, open_source
from cli.support.times import now_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replay.execution.runner import Backtest
    from replay.sources.base import ReadOptions

COLUMNS = (
    "policy", "earned", "interval", "of best", "against", "hits", "misses", "right", "recall",
    "in band", "turns", "settled",
)  # fmt: skip


Outcomes = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Predictions with outcomes, JSONL or CSV, in order; -: stdin."
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(help="A policy, optionally with parameters; repeatable [default: all]."),
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
Resume = Annotated[
    Path | None, typer.Option(help="Save finished work to this file, and resume from it.")
]


def backtest(
    outcomes: Outcomes = None,
    policy: Policies = None,
    more: More = None,
    grid: Grid = None,
    thresholds_out: ThresholdsOut = None,
    html: Html = None,
    csv: Csv = None,
    resume: Resume = None,
    *,
    history: HistoryOptions,
    options: KafkaPostgresOptions,
    json: Json = False,
) -> None:
    """Compute what policies would have earned on recorded predictions.

    Reads the log from the broker, the archive in Postgres, or a file, in order, and applies
    feedback at the time it arrived; commits nothing and writes to no topic. --outcomes FILE has
    predictions with outcomes; a line: {"context": {"workflow_type": "refund", "domain": "retail",
    "user_id": "u7"}, "confidence": 0.8, "correct": true, "gain": 400, "cost": 600, "at":
    1760000000000}; keys of the context may be missing; "workflow_id" and "speculated" are optional,
    as are "not_startable" (a reason) if no threshold could have started the call, and
    "calibrated" if its confidence is believed in a cold start. A line of
    POLICY.jsonl is the threshold in force before that line's outcome, for its gain and cost:
    {"threshold": t, "level": path}.

    Examples: headstart backtest --outcomes o.jsonl --policy default --policy fixed:0.8;
    headstart backtest --since 3d --tenant acme --html report.html;
    headstart backtest --source log.jsonl.zst hops --grid 'ema:alpha=.05..0.5x8' --cost-scale 2
    """
    from learners.registry import POLICIES
    from replay.execution.runner import Backtest, named
    from replay.predictions.policy_grid import chosen

    if outcomes:
        levels = "domain,user_id" if history.levels is None else history.levels
        history = replace(history, source=outcomes, levels=levels)
    claim_outputs(html, csv, inputs=[history.source, resume], json=json)
    _check_places(thresholds_out, resume, history.source)
    settings = options.read()
    reading = history.read_options(settings, now := _now(resume))
    source = open_source(history.source, reading, settings, outcomes=bool(outcomes))
    names = chosen([*(policy or []), *(more or [])], grid or []) or list(POLICIES)
    work = Backtest(
        source, named(names), suggest=outcomes is not None, thresholds_out=thresholds_out, begun=now
    )
    found = _run(work, resume, history.processes)
    _warn_of_scales(found, reading)
    _show(found, html, csv, json=json)


def _warn_of_scales(found: dict[str, Any], reading: ReadOptions) -> None:
    for tool in sorted(reading.scales.named.difference(found["read"]["scaled"])):
        found["read"]["warnings"].append(f"{tool}: scaled, but no prediction is of this tool")


def _check_places(thresholds_out: Path | None, resume: Path | None, source: str) -> None:
    from replay.files.output import OutputIsInput, check_folder, check_output

    if thresholds_out is not None:
        check_folder(thresholds_out)
    if resume is not None:
        try:
            check_output(resume, [source])
        except OutputIsInput as error:
            raise OutputIsInput(
                f"{resume}: is the input, not a file that --resume wrote; name another file"
            ) from error


def _now(resume: Path | None) -> int:
    """Return the time that ages refer to, Unix ms: of a resumed run, when it first began."""
    from replay.execution.resume_file import begun

    at = None if resume is None else begun(resume)
    if at is None:
        return now_ms()
    then = datetime.fromtimestamp(at / 1000, UTC)
    echo(f"{resume}: resumes the run started at {then:%Y-%m-%d %H:%M:%S} UTC")
    return at


def _run(work: Backtest, resume: Path | None, processes: int | None) -> dict[str, Any]:
    from replay.execution.runner import run_backtest
    from replay.results.summary import report

    with Bar(resume) as bar:
        units = run_backtest(work, bar, processes=processes, resume=resume)
    return report(work.history.name, work.policies, units, chosen=work.history.reading.chosen)


def _show(found: dict[str, Any], html: str | None, csv: str | None, *, json: bool) -> None:
    _report_reading(found)
    if html is not None:
        from replay.results.page import write_page

        write_page(html, found)
        echo(f"{html}: open it in a browser")
    if csv is not None:
        from replay.results.csv import write_csv

        write_csv(csv, found)
        echo(f"{csv}: a line per policy and context")
    if json:
        show_json(found)
        return
    columns = [_heading(name, found) for name in COLUMNS]
    show_table(columns, [_row(name, each, found) for name, each in found["policies"].items()])
    echo(found["conclusion"])


def _heading(name: str, found: Mapping[str, Any]) -> str:
    """Return a column's heading, with a remark if its figures are partly assumed or incomplete."""
    from replay.results.conclusion import remark

    if name == "earned":
        return name + remark(found)
    if name == "policy" and (count := found["not_startable"]["guesses"]):
        return f"policy (without {count} not startable)"
    return name


def _report_reading(found: Mapping[str, Any]) -> None:
    from replay.predictions.unjoined import Filter, skipped
    from replay.results.conclusion import caveats

    read = found["read"]
    for warning in read["warnings"]:
        echo(warning)
    for reason in read["named"][:5]:
        echo(f"skipped: {reason}")
    if read["refused"] > 5 or (read["refused"] and read.get("whole_log")):
        echo(skipped(read))
    if not found["outcomes"] and not found["not_startable"]["guesses"]:
        if read["outside"] and not read["events"]:
            raise LookupError(
                f"{found['source']}: {read['outside']} runs, all outside the range; --since takes "
                "2h, 3d or a date"
            )
        if not read["records"]:
            raise LookupError(
                f"{found['source']} holds no records in the range; --since takes 2h, 3d or a date"
            )
        chosen = Filter(**read["filter"]).options
        raise LookupError(
            f"{found['source']}: {read['events'] or read['records']} events, but no judged "
            "prediction among them"
            + (f" matches{chosen}" if chosen else "")
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
        echo(f"{found['contexts_beyond_limit']} predictions of contexts beyond the limit were "
            "judged by the level above")  # fmt: skip


def _row(name: str, figures: Mapping[str, Any], found: Mapping[str, Any]) -> list[Any]:
    from replay.results.conclusion import amount

    ends = figures["interval"]
    return [
        name,
        amount(figures["utility"]),
        f"{amount(ends[0])} to {amount(ends[1])}" if ends else "",
        percent(figures["share_of_best_fixed"]),
        f"{amount(figures['difference'], sign=True)} vs {found['against']}",
        figures["hits"],
        figures["misses"],
        percent(figures["success_rate"]),
        percent(figures["recall"]),
        percent(figures["time_in_band"]),
        figures["oscillations"],
        "" if figures["convergence"] is None else f"{figures['convergence']:g}",
    ]
