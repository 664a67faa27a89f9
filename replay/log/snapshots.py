"""Snapshots of the contexts table: its rows with the offsets that they are the state at.

A file of gzipped JSON lines: a header, then one line per row. They let `verify` begin where the
log's own beginning is gone.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from replay.files.input import local_file, open_input
from replay.files.output import Target, output_file
from replay.log.live_table import Rows

FORMAT: Final = 1


@dataclass(frozen=True)
class Snapshot:
    """The rows of a log epoch by partition, as one policy learned them."""

    epoch: int
    learner: str
    partitions: Mapping[int, Rows]

    def of_epoch(self, epoch: int) -> Mapping[int, Rows]:
        """Return the rows. Raises `NotASnapshot` where they are of another log epoch."""
        if epoch != self.epoch:
            raise NotASnapshot(f"the snapshot is of log epoch {self.epoch}, the log of {epoch}")
        return self.partitions


class NotASnapshot(ValueError):
    """The file is not a snapshot, or is cut; the message names which."""


def write_snapshot(file: Target, snapshot: Snapshot) -> int:
    """Write a snapshot, whole or not at all; return how many rows it has. Raises `OSError`."""
    rows = sum(map(len, snapshot.partitions.values()))
    header = {
        "format": FORMAT,
        "epoch": snapshot.epoch,
        "learner": snapshot.learner,
        "partitions": list(snapshot.partitions),
        "rows": rows,
    }
    with output_file(file, format="gzip") as whole, gzip.open(whole, "wb") as written:
        written.write(orjson.dumps(header) + b"\n")
        for number, each in snapshot.partitions.items():
            for line in _lines(number, each):
                written.write(line)
    return rows


def _lines(partition: int, rows: Rows) -> Iterator[bytes]:
    for key, row in rows.items():
        encoded = [base64.b64encode(part).decode() for part in (key, row)]
        yield orjson.dumps([partition, *encoded]) + b"\n"


def read_snapshot(file: Path) -> Snapshot:
    """Return a snapshot. Raises `NotASnapshot` and `OSError`."""
    try:
        with open_input(local_file(file)) as opened:
            lines = iter(opened)
            header = orjson.loads(next(lines, b""))
            if header["format"] != FORMAT:
                raise NotASnapshot(f"{file}: format {header['format']}, expected {FORMAT}")
            rows = _read_rows(lines)
        if sum(map(len, rows.values())) != header["rows"]:
            raise NotASnapshot(f"{file}: it is cut: take the snapshot again")
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, NotASnapshot):
            raise
        raise NotASnapshot(
            f"{file}: not a snapshot ({error}); `headstart thresholds snapshot` writes one"
        ) from error
    partitions = {number: rows.get(number, {}) for number in header["partitions"]}
    return Snapshot(header["epoch"], header["learner"], partitions)


def _read_rows(lines: Iterable[bytes]) -> dict[int, Rows]:
    rows: dict[int, Rows] = {}
    for line in lines:
        partition, key, row = orjson.loads(line)
        rows.setdefault(partition, {})[base64.b64decode(key)] = base64.b64decode(row)
    return rows
