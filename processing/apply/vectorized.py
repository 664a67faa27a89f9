"""Applies runs of plain events at once, where the kernels are loaded.

An event is plain if it is a completion that states its own outcome (confidence, was_correct), of
known contexts, at a time at which nothing expires. The result is that of `per_event`, which applies
one event after another wherever anything is unusual: a new context or spool, a position that is not
the next, an expiry that is due, a nearly full commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from processing.apply.per_event import EventApplier
from processing.apply.scanned_batch import Key, ScannedBatch
from processing.contexts.context import ContextPath
from processing.contexts.vectorized_update import only_policy, update_many
from processing.kernel_handle import kernels
from processing.partition_state import PartitionState
from processing.records.batch import RecordBatch
from processing.state.counters import OutcomeRow
from processing.state.deduplication import LastPosition, most_bytes

SCAN_BYTES: Final = 4_000_000
"""About how many bytes are scanned together."""
MIN_SCAN_BYTES: Final = 10_000
"""Smaller batches are not scanned; an estimate."""
MIN_EVENTS: Final = 16
"""Shorter runs are applied event by event,"""
MIN_EVENTS_PER_PATH: Final = 1
"""and so are those with fewer events for each of their paths."""
RECORDS_PER_HEADER: Final = 8
"""A batch with more records with headers than one in so many is not scanned."""
SKIPPED_BATCHES: Final = 8
"""Batches not scanned after two of which less than half could be applied at once."""
RETRY_RECORDS: Final = 256
"""Records after which a run is tried again that could not be applied at once."""
MAX_SPOOL_BYTES: Final = 1_200_000
"""Most bytes of the spool rows that one run may touch first."""
MAX_EVENTS: Final = 16_384
"""Most events of one run."""
MAX_RUN_COMMIT_BYTES: Final = 2_000_000
"""Bytes of a commit's rows, about, from which on events are applied one by one: that checks the
size after each."""


class _SpoolColumns(NamedTuple):
    """The spools of some events, by key, in order of first appearance.

    `seen`: the last position of each before these events; `lasts`: the index of its last event.
    """

    keys: list[Key]
    seen: list[LastPosition]
    lasts: Any


class _Run(NamedTuple):
    """Events that can be applied at once."""

    integers: Any
    floats: Any
    offsets: Any
    spools: _SpoolColumns


class VectorizedApplier:
    """Applies runs of plain events at once, of batches scanned by the kernels."""

    def __init__(self, state: PartitionState, events: EventApplier) -> None:
        """`events` applies all other events, and returns when something expires."""
        self._state, self._events = state, events
        self._contexts, self._starts = state.contexts, state.open_predictions
        self._deduplicator, self._clock = state.deduplicator, state.clock
        self._scan: ScannedBatch | None = None
        self._scan_of: RecordBatch | None = None
        self._retry_at = 0
        """Position of the scanned batch before which events are applied one by one."""
        self._skip = 0
        """Batches that will not be scanned."""
        self._scanned_records = self._applied_records = 0
        self._wasted_scans = 0
        """Batches in a row of which less than half could be applied at once."""

    def apply(self, batch: RecordBatch, begin: int) -> tuple[int, int] | None:
        """Apply plain records from `begin` on; return the next position, and how many events.

        None, with nothing applied, where that has to be done event by event.
        """
        scan = self._scanned(batch, begin)
        if scan is None or begin < self._retry_at:
            return None
        first, end, position = scan.plain_events(begin, MAX_EVENTS)
        paths, path_of = self._paths(scan, first, end)
        if None in paths:  # up to the first event of a path that is not known
            unknown = first + int(np.flatnonzero(path_of >= paths.index(None))[0])
            position = scan.record_of(unknown)
            self._retry_at = position + 1
            end = scan.events_to(position)
            path_of = path_of[: end - first]
            paths = paths[: int(path_of.max(initial=-1)) + 1]
        run = None
        if end - first >= max(MIN_EVENTS, MIN_EVENTS_PER_PATH * len(paths)) and self._fits(paths):
            run = self._run(scan, slice(begin, position), slice(first, end))
        if run is None:
            self._retry_at = max(self._retry_at, min(position, begin + RETRY_RECORDS))
            return None
        self._apply(run, paths, path_of)  # type: ignore[arg-type]
        self._applied_records += position - begin
        return position, end - first

    def end_batch(self) -> None:
        """Release the scan of an applied batch: it has megabytes. Pause if scans are wasted."""
        if self._scanned_records:
            wasted = 2 * self._applied_records < self._scanned_records
            self._wasted_scans = self._wasted_scans + 1 if wasted else 0
            if self._wasted_scans > 1:
                self._skip, self._wasted_scans = SKIPPED_BATCHES, 1
        self._scan = self._scan_of = None
        self._retry_at = self._scanned_records = self._applied_records = 0

    def _scanned(self, batch: RecordBatch, begin: int) -> ScannedBatch | None:
        """Return the scan that holds a position; None where it cannot be scanned, or need not."""
        scan, levels = self._scan, self._contexts.levels
        if scan is not None and self._scan_of is batch and scan.begin <= begin < scan.end:
            return scan
        if not self._can_scan(batch, begin):
            return None
        if self._skip:
            self._skip -= begin == 0
            return None
        prefetched, batch.prefetched = batch.prefetched, None
        scan = None if prefetched is None else prefetched.result()
        if scan is None:
            records = range(begin, batch.piece(begin, SCAN_BYTES))
            scan = _scan_records(batch, records, levels, kernels())
            if scan is None:
                return None
        self._scan, self._scan_of = scan, batch
        self._scanned_records += scan.end - scan.begin
        dense = len(scan.rows) >= MIN_EVENTS_PER_PATH * scan.path_count
        self._retry_at = 0 if dense else scan.end
        return scan

    def prefetch_scan(self, batch: RecordBatch) -> Callable[[], ScannedBatch | None] | None:
        """Return a function that scans a batch ahead, in any thread; None: not worth it.

        Its result belongs in `RecordBatch.prefetched`.
        """
        if self._skip or not self._can_scan(batch, 0):
            return None
        return partial(_scan_records, batch, range(len(batch)), self._contexts.levels, kernels())

    def _can_scan(self, batch: RecordBatch, begin: int) -> bool:
        compiled = kernels()
        return (
            compiled is not None
            and RECORDS_PER_HEADER * len(batch.headers) <= len(batch)
            and len(self._contexts.levels) <= compiled.MOST_LEVELS
            and (len(batch) - begin) * batch.value_bytes_at(begin) >= MIN_SCAN_BYTES
        )

    def _paths(
        self, scan: ScannedBatch, first: int, end: int
    ) -> tuple[list[ContextPath | None], Any]:
        """Return the paths of events in order of first appearance, and each event's index."""
        numbers = scan.rows[first:end, kernels().PATH]
        wanted: Sequence[int] = range(int(numbers.max(initial=-1)) + 1)
        path_of = numbers
        if first > 0 or not np.bincount(numbers).all():  # otherwise they are numbered in this order
            each, at, path_of = np.unique(numbers, return_index=True, return_inverse=True)
            order = np.argsort(at)
            wanted, path_of = each[order].tolist(), np.argsort(order)[path_of]
        known, keys = self._contexts.paths, scan.path_keys
        return [known.get(keys[number]) for number in wanted], path_of

    def _run(self, scan: ScannedBatch, records: slice, events: slice) -> _Run | None:
        """Return events with all that applying them needs; None where one is not plain."""
        rows = scan.rows[events]
        latest = int(rows[:, kernels().AT].max())
        if latest >= self._events.next_expiry() or self._may_close(scan, rows):
            return None
        spools = self._spools(scan, rows)
        if spools is None:
            return None
        return _Run(rows, scan.numbers[events], scan.offsets_of(records), spools)

    def _apply(self, run: _Run, paths: list[ContextPath], path_of: Any) -> None:
        times = run.integers[:, kernels().AT]
        clock, row = self._clock, self._clock.row
        if clock.set_by_records:
            np.clip(times, *clock.bounds, out=times)
            clocks = np.full(len(times), row.clock, np.int64)
        else:
            clocks = np.maximum.accumulate(times)
            np.maximum(clocks, row.clock, out=clocks)
        self._note_positions(run, clocks)
        row.clock = int(clocks[-1])
        row.outcomes += len(clocks)
        self._learn(run, paths, path_of)

    def _may_close(self, scan: ScannedBatch, rows: Any) -> bool:
        """Return whether an event may complete an open start."""
        if not self._starts:
            return False
        compiled, awaits = kernels(), self._starts.awaits
        keys = [scan.path_keys[number] for number in rows[:, compiled.PATH].tolist()]
        workflows, tasks = scan.texts(rows, compiled.WORKFLOW), scan.texts(rows, compiled.TASK)
        return any(
            awaits(str(key[0]), str(key[1]), str(workflow), task)
            for key, workflow, task in zip(keys, workflows, tasks, strict=True)
        )

    def _fits(self, paths: Sequence[ContextPath | None]) -> bool:
        """Return whether the rows of paths surely fit the commit too."""
        untouched = [path for path in paths if path is not None and not path.touched]
        rows = len(untouched) * (len(self._contexts.levels) + 2)
        added = self._contexts.bytes_of(rows, sum(path.key_bytes for path in untouched))
        return self._state.touched_bytes + added < MAX_RUN_COMMIT_BYTES

    def _spools(self, scan: ScannedBatch, rows: Any) -> _SpoolColumns | None:
        """Return the spools of events.

        None where one is new here, a position is not above the last one, or they are too many.
        """
        compiled = kernels()
        order = np.argsort(rows[:, compiled.SPOOL_KEY], kind="stable")
        numbers, positions = rows[order, compiled.SPOOL_KEY], rows[order, compiled.POSITION]
        next_is_same = numbers[1:] == numbers[:-1]
        if bool((next_is_same & (numbers[1:] >= 0) & (positions[1:] <= positions[:-1])).any()):
            return None
        begins = np.flatnonzero(np.concatenate(([True], ~next_is_same)))
        lasts = order[np.append(begins[1:], len(numbers)) - 1]
        begins = begins[numbers[begins] >= 0]  # those below have no origin
        lasts = lasts[len(lasts) - len(begins) :]
        by_first = np.argsort(order[begins])
        begins, lasts = begins[by_first], lasts[by_first]
        keys = [scan.spool_keys[number] for number in numbers[begins].tolist()]
        seen = list(map(self._deduplicator.positions.get, keys))
        if None in seen:
            return None
        found = _SpoolColumns(keys, seen, lasts)  # type: ignore[arg-type]
        before = np.fromiter((each.position for each in found.seen), np.int64, len(keys))
        if bool((positions[begins] <= before).any()) or not _rows_fit(found):
            return None
        return found

    def _note_positions(self, run: _Run, clocks: Any) -> None:
        """Note the last position of each spool."""
        keys, every, lasts = run.spools
        positions = run.integers[lasts, kernels().POSITION].tolist()
        offsets = run.offsets[lasts].tolist()
        for key, seen, position, clock, offset in zip(
            keys, every, positions, clocks[lasts].tolist(), offsets, strict=True
        ):
            if seen.touched:
                seen.position, seen.at, seen.offset = position, clock, offset
                continue
            tenant, workflow_type, spool = key
            origin = str(spool), position
            self._deduplicator.duplicate(str(tenant), str(workflow_type), origin, clock, offset)

    def _learn(self, run: _Run, paths: list[ContextPath], path_of: Any) -> None:
        """Let every path learn its outcomes, at once if the kernels know its policy."""
        compiled = kernels()
        order = np.argsort(path_of, kind="stable")
        begins = np.searchsorted(path_of[order], np.arange(len(paths)))
        ends = np.append(begins[1:], len(order))
        offsets = run.offsets[order[ends - 1]].tolist()
        for path, offset in zip(paths, offsets, strict=True):
            self._contexts.touch(path)
            path.offset = offset
        policy = only_policy(paths)
        rule = None if policy is None else compiled.rule_of(policy)
        if rule is not None:
            self._contexts.apply_pending()
            weights = self._state.config.weights
            update_many(rule, weights, paths, path_of, run.integers, run.floats, compiled)
            return
        together: dict[int, list[int]] = {}
        for index, path in enumerate(paths):
            together.setdefault(id(path.pending), []).append(index)
        outcomes = _outcomes(run, paths, path_of)
        for indexes in together.values():
            path = paths[indexes[0]]
            self._contexts.expect(path)
            path.pending.extend(_picked(outcomes, order, begins, ends, indexes))


def _outcomes(run: _Run, paths: list[ContextPath], path_of: Any) -> list[OutcomeRow]:
    """Return events as outcomes."""
    compiled = kernels()
    floats = (compiled.CONFIDENCE, compiled.GAIN, compiled.COST, compiled.EXECUTION)
    return list(
        zip(
            *(run.floats[:, column].tolist() for column in floats),
            *(run.integers[:, column].tolist() for column in (compiled.AT, compiled.FLAGS)),
            map(paths.__getitem__, path_of.tolist()),
            strict=True,
        )
    )


def _rows_fit(spools: _SpoolColumns) -> bool:
    """Return whether the rows of spools fit a commit."""
    new = (key for key, seen in zip(spools.keys, spools.seen, strict=True) if not seen.touched)
    return sum(map(most_bytes, new)) <= MAX_SPOOL_BYTES  # type: ignore[arg-type]


def _scan_records(
    batch: RecordBatch, records: range, levels: Sequence[str], compiled: Any
) -> ScannedBatch | None:
    """Scan some records; return None where one has no value: those are applied singly."""
    try:
        return ScannedBatch(batch, records, levels, compiled)
    except TypeError:
        return None


def _picked(
    outcomes: Sequence[Any], order: Any, begins: Any, ends: Any, indexes: Sequence[int]
) -> list[Any]:
    """Return the outcomes of some paths, in the order in which they came."""
    if len(indexes) == len(begins):
        return list(outcomes)
    parts = [order[begins[index] : ends[index]] for index in indexes]
    events = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
    return [outcomes[event] for event in events.tolist()]
