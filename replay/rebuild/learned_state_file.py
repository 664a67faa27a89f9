"""The file of `headstart thresholds export`: the learned state as JSON lines.

A header, then one line per context with everything that its row in the table holds: the learner's
state and its thresholds, the counts, and the recent gain and cost. Numbers are written so that
reading them gives the same bits. (`replay.log.snapshots`, for `verify`, holds all rows as bytes.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from headstart.keys import workflow_type_of
from learners.policy import Policy, spec
from processing.contexts.thresholds import threshold_from_row
from processing.state.counters import restored
from processing.state.rows import CONTEXT, context_of, decode_context, is_deleted
from replay.files.input import local_file, open_input
from replay.log.live_table import TablePartition
from topics.epoch import Epoch

FORMAT: Final = "headstart-learned"
VERSION: Final = 1

Wanted = Callable[[str, str], bool]
"""Whether to export a context, by its tenant and path."""


def learned_lines(
    partitions: Mapping[int, TablePartition],
    epoch: Epoch,
    policy: Policy,
    levels: Sequence[str],
    wanted: Wanted,
) -> Iterator[bytes]:
    """Yield the lines of an export, contexts by tenant and path, coarse before fine.

    Raises `ValueError` if a state is not finite: a learner never leaves one.
    """
    rows = [
        (*context_of(key), key, row)
        for each in partitions.values()
        for key, row in each.rows.items()
        if key.startswith(CONTEXT) and not is_deleted(row) and wanted(*context_of(key))
    ]
    header = {
        "format": FORMAT,
        "version": VERSION,
        "epoch": epoch.number,
        "learner": spec(policy),
        "levels": list(levels),
        "watermarks": {str(number): each.applied_offset for number, each in partitions.items()},
        "contexts": len(rows),
    }
    yield _line(header)
    for tenant, path, key, row in sorted(rows):
        yield _line({"tenant": tenant, "path": path, **_context(key, row, path)})


def _context(key: bytes, raw: bytes, path: str) -> dict[str, Any]:
    row, served = decode_context(raw), threshold_from_row(key, raw)
    if not all(map(isfinite, row.state)):
        raise ValueError(f"the state of {path} is not finite: run `headstart verify`")
    return {
        "workflow_type": workflow_type_of(path),
        "learner": row.learner,
        "learner_version": row.policy_version,
        "state": row.state,
        "outcomes": row.outcomes,
        "speculated": row.speculated,
        "hits": row.hits,
        "gain": row.gain,
        "cost": row.cost,
        "counts": restored(row.outcomes, row.speculated, row.hits, row.counts),
        "at": row.at,
        "epoch": row.epoch,
        "offset": row.offset,
        "speculate": served.speculate,
        "suggest": served.suggest,
    }


def _line(value: Mapping[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


class LearnedHeader(msgspec.Struct):
    """The first line of the file: the fields that a reader needs."""

    format: str
    version: int
    levels: tuple[str, ...]
    contexts: int


class LearnedLine(msgspec.Struct):
    """One context of the file."""

    tenant: str
    path: str
    learner: str
    learner_version: int
    state: tuple[float, ...]
    outcomes: int
    speculated: int
    hits: int
    at: int | None = None
    gain: float = 0.0
    cost: float = 0.0
    counts: tuple[int, ...] = ()
    """All of `topics.schema.json_schema.Counts`, in its order; empty in older exports."""


class UnusableExport(ValueError):
    """The file was not written by `headstart thresholds export`, or is incomplete."""


def read_learned(file: Path) -> tuple[LearnedHeader, list[LearnedLine]]:
    """Return what a file holds. Raises `UnusableExport` and `OSError`."""
    with open_input(local_file(file)) as opened:
        first, *rest = opened.read().splitlines() or [b""]
    try:
        header = msgspec.json.decode(first, type=LearnedHeader)
        lines = [msgspec.json.decode(each, type=LearnedLine) for each in rest]
    except msgspec.MsgspecError as error:
        raise UnusableExport(
            f"{file}: not written by `headstart thresholds export FILE` ({error})"
        ) from error
    if (header.format, header.version) != (FORMAT, VERSION):
        raise UnusableExport(
            f"{file}: has format {header.format} version {header.version}, but {FORMAT} version "
            f"{VERSION} is needed: export it again"
        )
    if len(lines) != header.contexts:
        raise UnusableExport(
            f"{file}: has {len(lines)} of {header.contexts} contexts: export it again"
        )
    return header, lines
