"""The options that select a history and how it is read, for backtest, tune and others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.option_groups import OptionGroup
from cli.support.options import TenantOnly, WorkflowTypeOnly
from cli.support.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.sources.base import PredictionSource, ReadOptions, TimeRange
    from settings import Settings

_Levels = Annotated[
    str | None,
    typer.Option(help="Context keys below the workflow type, coarse to fine [default: settings]."),
]
_Gain = Annotated[
    float | None,
    typer.Option(min=0, max=1e15, help="What a hit saves, in ms, where no gain is recorded."),
]
_Cost = Annotated[
    float | None,
    typer.Option(min=0, max=1e15, help="What a miss wastes, in ms, where no cost is recorded."),
]
_Include = Annotated[
    list[str] | None,
    typer.Option(
        help="Count guesses that could not be started because of this as if they could: mode, "
        "tool, budget; repeat."
    ),
]
_Source = Annotated[
    str,
    typer.Option(
        help="broker, archive (Postgres), or a file: export, events, outcomes, agent runs; "
        "-: standard input."
    ),
]
_Since = Annotated[
    str | None, typer.Option(help="From: 90s, 2h, 3d ago, a date and time (UTC), or Unix ms.")
]
_FromOffset = Annotated[
    list[str] | None, typer.Option(help="PARTITION:OFFSET to begin at; repeat [broker, export].")
]
_ToOffset = Annotated[
    list[str] | None, typer.Option(help="PARTITION:OFFSET to end before; repeat [broker, export].")
]
_GainScale = Annotated[
    list[str] | None, typer.Option(help="What if hits saved so many times as much: 2, or TOOL=2.")
]
_CostScale = Annotated[
    list[str] | None, typer.Option(help="What if misses cost so many times as much: 2, or TOOL=2.")
]


@dataclass(frozen=True)
class HistoryOptions(OptionGroup):
    """Which predictions are read, from where, and how; a command may select some of the fields."""

    source: _Source = "broker"
    since: _Since = None
    until: Annotated[str | None, typer.Option(help="Up to, exclusive; as --since.")] = None
    from_offset: _FromOffset = None
    to_offset: _ToOffset = None
    tenant: TenantOnly = None
    workflow_type: WorkflowTypeOnly = None
    domain: Annotated[str | None, typer.Option(help="Only this domain.")] = None
    levels: _Levels = None
    gain: _Gain = None
    cost: _Cost = None
    include: _Include = None
    gain_scale: _GainScale = None
    cost_scale: _CostScale = None
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes [default: one for each core].")
    ] = None

    def read_options(self, settings: Settings, now: int | None = None) -> ReadOptions:
        """Return how the history is read; `now`: the time that ages refer to, Unix ms.

        Raises `typer.BadParameter`.
        """
        from headstart.arguments.levels import split_levels, wrong_level
        from replay.predictions.assumptions import Assumed
        from replay.predictions.unjoined import Filter
        from replay.predictions.what_if import read_scales
        from replay.sources.base import ReadOptions

        levels = settings.levels if self.levels is None else split_levels(self.levels)
        if wrong := wrong_level(levels):
            raise typer.BadParameter(wrong, param_hint="--levels")
        return ReadOptions(
            levels,
            self._range(now),
            Filter(self.tenant, self.workflow_type, self.domain),
            read_scales(self.gain_scale or [], self.cost_scale or []),
            Assumed(self.gain, self.cost, frozenset(self.include or ()) - {""}),
        )

    def open(self, settings: Settings) -> PredictionSource:
        """Return the history. Raises `typer.BadParameter`, `ValueError` and `OSError`."""
        return open_source(self.source, self.read_options(settings), settings)

    def _range(self, now: int | None) -> TimeRange:
        from replay.sources.base import TimeRange

        found = TimeRange(
            parse_time(self.since, now),
            parse_time(self.until, now),
            _offsets(self.from_offset),
            _offsets(self.to_offset),
        )
        if found.since is not None and found.until is not None and found.since >= found.until:
            raise typer.BadParameter("--since must be before --until")
        for partition in found.begin.keys() & found.end.keys():
            if found.begin[partition] >= found.end[partition]:
                raise typer.BadParameter(
                    f"--from-offset of {partition} must be before its --to-offset"
                )
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

    `outcomes`: `source` is a file, which holds outcomes unless it declares another format.
    """
    from replay.files.forms import detect_form
    from replay.files.input import local_file
    from replay.sources.export_file import ExportSource, is_export
    from replay.sources.files import open_file

    if source == "broker" and not outcomes:
        from replay.sources.broker import BrokerSource
        from settings import operators_key

        return BrokerSource(settings.kafka, reading, operators_key(settings))
    history: PredictionSource
    if source == "archive" and not outcomes:
        from replay.sources.archive import ArchiveSource

        history = ArchiveSource(settings.postgres, reading)
    else:
        file = local_file(source)
        if not is_export(file) and detect_form(file).form == "calls":
            from demo.trace_source import TraceHistory

            history = TraceHistory(file, reading)
        else:
            history = open_file(file, reading, outcomes=outcomes)
    if (reading.range.begin or reading.range.end) and not isinstance(history, ExportSource):
        raise typer.BadParameter(f"{source} has no offsets: give --since and --until")
    return history
