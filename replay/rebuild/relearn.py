"""Learns thresholds from a history with the threshold worker's own core.

Reads and writes nothing that is live. `replay.verify` compares with the live table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Final
from urllib.parse import unquote

import msgspec

from processing.config import LearningConfig
from processing.contexts.thresholds import is_published, threshold_from_row
from processing.rebuild import TableRebuild
from processing.records.batch import RecordBatch
from processing.state.rows import PARTITION_KEY, decode_partition, is_deleted
from replay.log.replayed_partition import EpochPartition, ReplayedPartition
from replay.predictions.notes import Notes
from replay.sources.base import NothingThere, PredictionSource, RecordSource
from topics.schema.json_schema import PublishedThreshold

COUNTED: Final = (
    "records", "events", "predictions", "duplicates", "unmatched", "unresolved", "refused", "named",
    "warnings",
)  # fmt: skip
"""The fields of `Notes` that relearning counts, all of the whole log, whatever is filtered. The
others need each join, which the worker's core does not show."""


class NoRecords(ValueError):
    """The history holds judged outcomes, not events."""


class _Learned(msgspec.Struct):
    thresholds: list[PublishedThreshold]
    notes: Notes


def relearn(
    history: PredictionSource,
    rules: LearningConfig,
    echo: Callable[[str], None],
    processes: int | None = None,
) -> tuple[list[PublishedThreshold], Notes]:
    """Return the thresholds of all contexts after a history, by descending number of outcomes.

    The notes have counts in their fields of `COUNTED` only.

    Raises `NoRecords` if the history has no events, and what reading it raises.
    """
    if not isinstance(history, RecordSource):
        raise NoRecords(f"{history.name} holds judged outcomes; headstart backtest reads them")
    units = history.units()
    cores = min(processes or len(os.sched_getaffinity(0)), len(units))
    notes, thresholds = Notes(), list[PublishedThreshold]()
    if cores == 1:
        _gather(map(partial(_learn, history, rules), units), units, thresholds, notes, echo)
    else:
        with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
            _gather(
                pool.map(partial(_learn, history, rules), units), units, thresholds, notes, echo
            )
    thresholds.sort(key=lambda each: (-each.outcomes, each.tenant, each.path))
    if not notes.records:
        raise NothingThere(f"{history.name} holds no records in the range")
    return thresholds, notes


def _gather(
    found: Iterable[bytes],
    units: Sequence[int],
    thresholds: list[PublishedThreshold],
    notes: Notes,
    echo: Callable[[str], None],
) -> None:
    for number, raw in enumerate(found, start=1):
        learned = msgspec.msgpack.decode(raw, type=_Learned)
        thresholds += learned.thresholds
        notes.add(learned.notes)
        echo(
            f"partition {number} of {len(units)}: {notes.events} events, {len(thresholds)} contexts"
        )


def _learn(history: RecordSource, rules: LearningConfig, unit: int) -> bytes:
    epoch, partitions = history.log()
    notes = Notes()
    place = EpochPartition(unit, partitions, epoch)
    following = ReplayedPartition(place, rules, {}, partial(notes.add_commit, unit))
    for batch, _ in history.batches(unit, notes):
        for takeover in following.apply(batch):
            _feed(takeover, history, unit)
        notes.records += len(batch)
    rows = following.table
    if PARTITION_KEY in rows:
        row = decode_partition(rows[PARTITION_KEY])
        notes.predictions, notes.duplicates = row.outcomes, row.duplicates
        notes.unmatched = row.unmatched
        notes.unresolved = row.unresolved + following.open_starts
    thresholds = [
        threshold_from_row(key, row)
        for key, row in rows.items()
        if is_published(unit, key) and not is_deleted(row)
    ]
    chosen_by = history.reading.chosen
    thresholds = [
        each
        for each in thresholds
        if chosen_by.tenant in (None, each.tenant)
        and chosen_by.workflow_type in (None, each.workflow_type)
        and (chosen_by.domain is None or chosen_by.domain in _domains(each.path))
    ]
    return msgspec.msgpack.encode(_Learned(thresholds, notes))


def _domains(path: str) -> list[str]:
    """Return the domain in a context's path, if it has one."""
    parts = (part.partition("=") for part in path.split("/"))
    return [unquote(value) for name, _, value in parts if name == "domain"]


def _feed(takeover: TableRebuild, history: RecordSource, unit: int) -> None:
    """Pass the records that a takeover needs, read again from the beginning of the history."""
    for batch in _part(history, unit, takeover.log):
        takeover.gather(batch)
    if takeover.begin():
        for batch in _part(history, unit, takeover.log):
            takeover.apply(batch)


def _part(history: RecordSource, unit: int, log: range) -> Iterator[RecordBatch]:
    for batch, _ in history.batches(unit, Notes()):
        if batch.begin >= log.stop:
            return
        batch.drop_before(log.start)
        batch.drop_from(log.stop)
        if len(batch):
            yield batch
