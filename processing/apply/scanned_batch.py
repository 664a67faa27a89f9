"""A batch as the compiled scanner reads it: plain records as columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np

from headstart.events.schema import MAX_CLOCK_SKEW_MS
from headstart.keys import SEPARATOR
from processing.records.batch import Packed, RecordBatch
from processing.records.columnar import WORD, words_in

MIN_EVENT_BYTES: Final = 160
"""No plain event is shorter."""

_BASIS: Final = np.uint64(hash("scanner") & (1 << 64) - 1)
"""Differs between processes, so that no producer can craft texts whose hashes collide."""

_ABSENT, _NEXT_KEY = "\0", "\n"
"""As `kernels.api` writes keys, with `SEPARATOR` between their parts; a test compares them."""
CACHED_KEYS: Final = 1 << 16
"""Most keys that are cached by their text, some 500 bytes each."""

Key = tuple[str | None, ...]
"""Tenant, workflow type, and the values of levels, or the spool."""


class ScannedBatch:
    """Records of a batch, from `begin` to `end`: which are plain, and their events as columns.

    Records are numbered from `begin`, events through all plain records. `counts`: events of each
    record, negative where it is not plain. `rows` and `numbers`: integers and floats of each event,
    with columns as in `kernels.layout`.
    """

    def __init__(
        self, batch: RecordBatch, records: range, levels: Sequence[str], compiled: Any
    ) -> None:
        """`compiled`: `kernels.api`. Raises `TypeError` where a record has no value."""
        self._compiled, self._depth = compiled, len(levels)
        self.begin, self.end = records.start, records.stop
        packed = _packed(batch, self.begin, self.end)
        self._data, self._offsets = packed.data, packed.offsets
        self.counts = np.empty(len(packed.ends), np.int64)
        self._scan(packed, levels)
        others = self.counts < 0
        if batch.headers:  # the scanner does not read them
            others |= np.isin(self._offsets, np.fromiter(batch.headers, np.int64))
        self._others = np.flatnonzero(others)
        self._before = np.concatenate(([0], np.cumsum(np.maximum(self.counts, 0))))

    def _scan(self, packed: Packed, levels: Sequence[str]) -> None:
        compiled = self._compiled
        capacity = int((packed.ends - packed.begins).sum()) // MIN_EVENT_BYTES + 1
        rows = np.empty((capacity, compiled.INTEGERS), np.int64)
        numbers = np.empty((capacity, compiled.NUMBERS), np.float64)
        paths, spools = np.empty((2, capacity, compiled.SPANS), np.int64)
        path_slots, spool_slots = np.full((2, 1 << (2 * capacity).bit_length()), -1, np.int64)
        taken, known_paths, known_spools = compiled.scan(
            words_in(packed.data), packed.data, packed.begins, packed.ends,
            packed.timestamps + MAX_CLOCK_SKEW_MS, *_tables(levels, compiled),
            self.counts, rows, numbers, paths, spools, path_slots, spool_slots, _BASIS,
            np.empty(compiled.SPANS, np.int64),
        )  # fmt: skip
        self.rows, self.numbers = rows[:taken], numbers[:taken]
        self._paths, self._spools = paths[:known_paths], spools[:known_spools]

    @property
    def path_count(self) -> int:
        """Number of different paths."""
        return len(self._paths)

    def plain_events(self, position: int, most: int) -> tuple[int, int, int]:
        """Return the plain events from a position of the batch on: first, end.

        And the position behind them. More than `most` events only where one record has them.
        """
        record = position - self.begin
        at = int(np.searchsorted(self._others, record))
        end = int(self._others[at]) if at < len(self._others) else len(self.counts)
        first = int(self._before[record])
        full = int(np.searchsorted(self._before, first + most, "right")) - 1
        end = min(end, max(record + 1, full))
        return first, int(self._before[end]), self.begin + end

    def record_of(self, event: int) -> int:
        """Return the position of the record that holds an event."""
        return self.begin + int(np.searchsorted(self._before, event, "right")) - 1

    def events_to(self, position: int) -> int:
        """Return how many events come before a position."""
        return int(self._before[position - self.begin])

    def offsets_of(self, positions: slice) -> Any:
        """Return the offset of each event in plain records."""
        records = slice(positions.start - self.begin, positions.stop - self.begin)
        return np.repeat(self._offsets[records], self.counts[records])

    @cached_property
    def path_keys(self) -> list[Key]:
        """Of each path tenant, workflow type and the levels' values, None where one is missing."""
        levels = self._compiled.LEVELS
        return self._keys(self._paths, range(levels, levels + 2 * self._depth, 2))

    @cached_property
    def spool_keys(self) -> list[Key]:
        """Of each spool and key tenant, workflow type and spool id."""
        return self._keys(self._spools, (self._compiled.SPOOL,))

    def _keys(self, groups: Any, more: Sequence[int]) -> list[Key]:
        spans = np.array([self._compiled.TENANT, self._compiled.TYPE, *more])
        begins, ends = groups[:, spans], groups[:, spans + 1]
        size = int(np.where(begins < 0, 1, ends - begins).sum())  # an empty text takes nothing
        text = np.empty(size + len(groups) * len(spans), np.uint8)
        self._compiled.keys(self._data, groups, spans, text)
        return [*map(_key, text.tobytes().decode("ascii").split(_NEXT_KEY)[:-1])]

    def texts(self, events: Any, span: int) -> list[str | None]:
        """Return the text of a span of some events, None where it is missing."""
        begins, ends = events[:, span].tolist(), events[:, span + 1].tolist()
        data = memoryview(self._data)
        return [
            str(data[begin:end], "ascii") if begin >= 0 else None
            for begin, end in zip(begins, ends, strict=True)
        ]


@lru_cache(CACHED_KEYS)
def _key(text: str) -> Key:
    """Return the parts of a key. Cached, because the same keys come in every batch."""
    return tuple([None if part == _ABSENT else part for part in text.split(SEPARATOR)])


def _packed(batch: RecordBatch, begin: int, end: int) -> Packed:
    """Return some records of a batch as columns. Raises `TypeError` where one has no value."""
    if (packed := batch.packed) is not None:
        some = Packed(packed.data, *(column[begin:end] for column in packed[1:]))
        if int(some.begins.min()) < 0:
            raise TypeError("a record has no value")
        return some
    values = batch.values[begin:end]
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))  # type: ignore[arg-type]
    return Packed(
        np.frombuffer(b"".join([*values, bytes(WORD)]), np.uint8),  # type: ignore[list-item]
        np.array(batch.offsets[begin:end], np.int64),
        np.array(batch.timestamps[begin:end], np.int64),
        np.concatenate(([0], ends[:-1])),
        ends,
    )


def _tables(levels: Sequence[str], compiled: Any) -> tuple[Any, Any]:
    """Return the levels as the scanner takes them, and the names of those in `data.context`."""
    table, names = [], b""
    for level in levels:
        begin = len(names)
        if level in compiled.TOP_LEVELS:
            table.append((compiled.TOP_LEVELS.index(level), 0, 0))
        else:
            names += level.encode()
            table.append((-1, begin, len(names)))
    return np.array(table, np.int64).reshape(-1, 3), np.frombuffer(names or b" ", np.uint8)
