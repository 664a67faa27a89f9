"""Feeds a source's predictions to a backtest engine."""

from __future__ import annotations

from collections.abc import Callable

from replay.engine.engine import BacktestEngine
from replay.engine.join import PredictionJoiner
from replay.predictions.notes import Notes
from replay.sources.base import PredictionSource, RecordSource


def feed(
    source: PredictionSource,
    unit: int,
    engine: BacktestEngine,
    notes: Notes,
    progress: Callable[[float], None] = lambda _: None,
) -> None:
    """Have an engine judge all predictions of a unit; `progress` takes the share that was read."""
    if isinstance(source, RecordSource):
        _feed_records(source, unit, engine, notes, progress)
        return
    for predictions, share in source.predictions(unit, notes, engine.basis):
        if not engine.basis.incomplete:
            for tenant, paths, outcome, group in predictions:
                engine.judge(engine.chain(tenant, paths), outcome, group)
        progress(share)
    engine.flush()


def _feed_records(
    source: RecordSource,
    unit: int,
    engine: BacktestEngine,
    notes: Notes,
    progress: Callable[[float], None],
) -> None:
    epoch, partitions = source.log()
    reading = source.reading
    for partition in sorted(reading.range.begin.keys() | reading.range.end.keys()):
        if partition >= partitions:
            raise ValueError(f"there is no partition {partition}: the log has {partitions}")
    joiner = PredictionJoiner(
        unit, partitions, epoch, engine, reading.levels, reading.chosen, reading.scales,
        reading.assumed,
    )  # fmt: skip
    for batch, share in source.batches(unit, notes):
        joiner.take(batch, notes)
        progress(share)
    joiner.end(notes)
