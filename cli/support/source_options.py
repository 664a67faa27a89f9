"""Which history a command looks at: the options that several share, and what they make."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.predictions.assumptions import Assumed
    from replay.sources.base import PredictionSource, ReadOptions, TimeRange
    from settings import Settings

Source = Annotated[
    str,
    typer.Option(
        help="broker, archive (Postgres), or a file: export, events, outcomes, agent runs; "
        "-: standard input."
    ),
]
Since = Annotated[
    str | None, typer.Option(help="From: 90s, 2h, 3d ago, a date and time (UTC), or Unix ms.")
]
Until = Annotated[str | None, typer.Option(help="Up to, exclusive; as --since.")]
FromOffset = Annotated[
    list[str] | None, typer.Option(help="PARTITION:OFFSET to begin at; repeat [broker, export].")
]
ToOffset = Annotated[
    list[str] | None, typer.Option(help="PARTITION:OFFSET to end before; repeat [broker, export].")
]
TenantOnly = Annotated[str | None, typer.Option(help="Only this tenant.")]
WorkflowOnly = Annotated[str | None, typer.Option(help="Only this workflow type.")]
DomainOnly = Annotated[str | None, typer.Option(help="Only this domain.")]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Processes [default: one for each core].")
]
Levels = Annotated[
    str | None,
    typer.Option(help="Context keys below the workflow type, coarse to fine [default: settings]."),
]
Gain = Annotated[
    float | None,
    typer.Option(min=0, max=1e15, help="What a hit saves, in ms, where no gain is recorded."),
]
Cost = Annotated[
    float | None,
    typer.Option(min=0, max=1e15, help="What a miss wastes, in ms, where no cost is recorded."),
]
Include = Annotated[
    list[str] | None,
    typer.Option(
        help="Count guesses that could not be started because of this as if they could: mode, "
        "tool, budget; repeat."
    ),
]
GainScale = Annotated[
    list[str] | None, typer.Option(help="What if hits saved so many times as much: 2, or TOOL=2.")
]
CostScale = Annotated[
    list[str] | None, typer.Option(help="What if misses cost so many times as much: 2, or TOOL=2.")
]

_AGO = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def moment(text: str | None, now: datetime | None = None) -> int | None:
    """Return a time in Unix ms; None where none is given. Raises `typer.BadParameter`."""
    if text is None:
        return None
    try:
        if ago := _AGO.fullmatch(text):
            at = (now or datetime.now(UTC)) - timedelta(seconds=float(ago[1]) * _SECONDS[ago[2]])
        elif text.isdecimal():
            return int(text)
        else:
            at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is no time: give 90s, 2h, 3d, 2026-01-31T12:00, or Unix ms"
        ) from None
    return int(at.replace(tzinfo=at.tzinfo or UTC).timestamp() * 1000)


def reading_of(
    settings: Settings,
    levels: str | None,
    part: TimeRange,
    tenant: str | None = None,
    workflow_type: str | None = None,
    domain: str | None = None,
) -> ReadOptions:
    """Return how a history is read, from its options. Raises `typer.BadParameter`."""
    from headstart.arguments.levels import split_levels, wrong_level
    from replay.predictions.unjoined import Filter
    from replay.sources.base import ReadOptions

    given = settings.levels if levels is None else split_levels(levels)
    if wrong := wrong_level(given):
        raise typer.BadParameter(wrong, param_hint="--levels")
    return ReadOptions(
        given,
        part,
        Filter(tenant, workflow_type, domain),
    )


def assumed(
    gain: float | None, cost: float | None, include: Sequence[str] | None = None
) -> Assumed:
    """Return what is assumed: a gain and a cost (ms), and what could have been started."""
    from replay.predictions.assumptions import Assumed

    return Assumed(gain, cost, frozenset(include or ()) - {""})


def span(
    since: str | None,
    until: str | None,
    begin: Sequence[str] | None,
    end: Sequence[str] | None,
    now: datetime | None = None,
) -> TimeRange:
    """Return a range from its options. Raises `typer.BadParameter`."""
    from replay.sources.base import TimeRange

    found = TimeRange(moment(since, now), moment(until, now), _offsets(begin), _offsets(end))
    if found.since is not None and found.until is not None and found.since >= found.until:
        raise typer.BadParameter("--since must be before --until")
    for partition in found.begin.keys() & found.end.keys():
        if found.begin[partition] >= found.end[partition]:
            raise typer.BadParameter(f"--from-offset of {partition} must be before its --to-offset")
    return found


def _offsets(given: Sequence[str] | None) -> dict[int, int]:
    offsets = {}
    for each in given or ():
        partition, _, offset = each.partition(":")
        if not (partition.isdecimal() and offset.isdecimal()):
            raise typer.BadParameter(f"{each!r} is not PARTITION:OFFSET, as 3:1200")
        offsets[int(partition)] = int(offset)
    return offsets


def open_source(
    source: str, reading: ReadOptions, settings: Settings, *, outcomes: bool = False
) -> PredictionSource:
    """Return the history that `--source` names. Raises `ValueError` and `OSError`.

    `outcomes`: it is a file, and one that does not say what it is holds judged outcomes.
    """
    from replay.files.forms import told_by
    from replay.files.input import local_file
    from replay.sources.export_file import ExportSource, is_export
    from replay.sources.files import open_file

    if source == "broker" and not outcomes:
        from replay.sources.broker import BrokerSource

        return BrokerSource(settings.kafka, reading)
    history: PredictionSource
    if source == "archive" and not outcomes:
        from replay.sources.archive import ArchiveSource

        history = ArchiveSource(settings.postgres, reading)
    else:
        file = local_file(source)
        if not is_export(file) and told_by(file).form == "calls":
            from demo.trace_source import TraceHistory

            history = TraceHistory(file, reading)
        else:
            history = open_file(file, reading, outcomes=outcomes)
    if (reading.range.begin or reading.range.end) and not isinstance(history, ExportSource):
        raise typer.BadParameter(f"{source} has no offsets: give --since and --until")
    return history
