"""Stretches of plain events applied at once, where the compiled kernels are loaded.

Plain is a completion that says itself what is to be learned (confidence, was_correct), of contexts
that are known, at a time that ends nothing. The result is that of `events`, which applies one event
after another wherever anything is unusual: a context, spool or position that is not simply the
next, an expiry that is due, a commit nearly full.
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
"""About as many are scanned together."""
LEAST_BYTES: Final = 10_000
"""Of a batch, about, from which on it is scanned."""
LEAST: Final = 16
"""Events of a stretch from which on it is worth it,"""
LEAST_EACH: Final = 1
"""and events for each of its contexts."""
FEW_HEADERS: Final = 8
"""Records of a batch for each that has headers, from which on it is scanned."""
REST: Final = 8
"""Batches that are not scanned after two of which less than half could be applied at once."""
RETRY: Final = 256
"""Records after which a stretch is tried again that could not be applied at once."""
MOST_LANE_BYTES: Final = 1_200_000
"""Of the rows of one stretch's keys and spools, at the most."""
MOST: Final = 16_384
"""Events of one stretch."""
MOST_BYTES: Final = 2_000_000
"""Of a commit's rows, about, from which on events are applied one by one: that looks at each."""


class _DedupColumns(NamedTuple):
    """The keys and spools of some events, in the order in which they come first.

    `keys` and where each was `seen`; `lasts`: the place of the last event of each.
    """

    keys: list[Key]
    seen: list[LastPosition]
    lasts: Any


class _Stretch(NamedTuple):
    """Events that can be applied at once."""

    scan: ScannedBatch
    rows: Any
    numbers: Any
    offsets: Any
    lanes: _DedupColumns


class VectorizedApplier:
    """Applies runs of plain events at once, of batches that it scanned with the kernels."""

    def __init__(self, state: PartitionState, events: EventApplier) -> None:
        """`events` applies the others, and knows when something expires."""
        self._state, self._events = state, events
        self._contexts, self._starts = state.contexts, state.open_predictions
        self._deduplicator, self._clock = state.deduplicator, state.clock
        self._scan: ScannedBatch | None = None
        self._scan_of: RecordBatch | None = None
        self._later = 0
        """The position of the scanned batch before which events are better applied one by one."""
        self._resting = 0
        """Batches that will not be scanned."""
        self._looked_at = self._applied = self._useless = 0
        """Records of the batch that were scanned, and that were applied at once; and how many
        batches in a row were scanned in vain."""

    def apply(self, batch: RecordBatch, begin: int) -> tuple[int, int] | None:
        """Apply plain records from `begin` on; return the next position, and how many events.

        None, nothing done, where that has to be done event by event.
        """
        scan = self._scanned(batch, begin)
        if scan is None or begin < self._later:
            return None
        first, end, position = scan.stretch(begin, MOST)
        chains, places = self._chains(scan, first, end)
        if None in chains:  # up to the first event of a context that is not known
            unknown = first + int(np.flatnonzero(places >= chains.index(None))[0])
            position = scan.record_of(unknown)
            self._later = position + 1
            end = scan.events_to(position)
            places = places[: end - first]
            chains = chains[: int(places.max(initial=-1)) + 1]
        found = None
        if end - first >= max(LEAST, LEAST_EACH * len(chains)) and self._has_room(chains):
            found = self._taken(scan, slice(begin, position), slice(first, end))
        if found is None:
            self._later = max(self._later, min(position, begin + RETRY))
            return None
        self._apply(found, chains, places)  # type: ignore[arg-type]
        self._applied += position - begin
        return position, end - first

    def end_batch(self) -> None:
        """Let go of a batch that is through: it has megabytes. Rest where scanning was in vain."""
        if self._looked_at:
            self._useless = self._useless + 1 if 2 * self._applied < self._looked_at else 0
            if self._useless > 1:
                self._resting, self._useless = REST, 1
        self._scan = self._scan_of = None
        self._later = self._looked_at = self._applied = 0

    def _scanned(self, batch: RecordBatch, begin: int) -> ScannedBatch | None:
        """Return what is in a batch; None where nobody can tell, or it is not worth it."""
        scan, levels = self._scan, self._contexts.levels
        if scan is not None and self._scan_of is batch and scan.begin <= begin < scan.end:
            return scan
        if not self._can_be_scanned(batch, begin):
            return None
        if self._resting:
            self._resting -= begin == 0
            return None
        ahead, batch.ahead = batch.ahead, None
        scan = None if ahead is None else ahead.result()
        if scan is None:
            records = range(begin, batch.piece(begin, SCAN_BYTES))
            scan = _scan_records(batch, records, levels, kernels())
            if scan is None:
                return None
        self._scan, self._scan_of = scan, batch
        self._looked_at += scan.end - scan.begin
        self._later = scan.end if len(scan.rows) < LEAST_EACH * scan.places else 0
        return scan

    def prefetch_scan(self, batch: RecordBatch) -> Callable[[], ScannedBatch | None] | None:
        """Return what scans a batch, in whatever thread, before it is applied; None: not worth it.

        What that returns is the result of `RecordBatch.ahead`.
        """
        if self._resting or not self._can_be_scanned(batch, 0):
            return None
        return partial(_scan_records, batch, range(len(batch)), self._contexts.levels, kernels())

    def _can_be_scanned(self, batch: RecordBatch, begin: int) -> bool:
        compiled = kernels()
        return (
            compiled is not None
            and FEW_HEADERS * len(batch.headers) <= len(batch)
            and len(self._contexts.levels) <= compiled.MOST_LEVELS
            and (len(batch) - begin) * batch.value_bytes_at(begin) >= LEAST_BYTES
        )

    def _chains(
        self, scan: ScannedBatch, first: int, end: int
    ) -> tuple[list[ContextPath | None], Any]:
        """Return the chains of events, in the order in which they come first; and each event's."""
        numbers = scan.rows[first:end, kernels().PLACE]
        wanted: Sequence[int] = range(int(numbers.max(initial=-1)) + 1)
        places = numbers
        if first > 0 or not np.bincount(numbers).all():  # else they are numbered in this order
            each, at, places = np.unique(numbers, return_index=True, return_inverse=True)
            order = np.argsort(at)
            wanted, places = each[order].tolist(), np.argsort(order)[places]
        known, keys = self._contexts.paths, scan.place_keys
        return [known.get(keys[number]) for number in wanted], places

    def _taken(self, scan: ScannedBatch, records: slice, events: slice) -> _Stretch | None:
        """Return events with what applying them needs; None where one is not simply the next."""
        rows = scan.rows[events]
        if int(rows[:, kernels().AT].max()) >= self._events.next_expiry() or self._may_close(
            scan, rows
        ):
            return None
        lanes = self._lanes(scan, rows)
        if lanes is None:
            return None
        return _Stretch(scan, rows, scan.numbers[events], scan.offsets_of(records), lanes)

    def _apply(self, found: _Stretch, chains: list[ContextPath], places: Any) -> None:
        times = found.rows[:, kernels().AT]
        clock, row = self._clock, self._clock.row
        if clock.witnessed:
            np.clip(times, *clock.bounds, out=times)
            clocks = np.full(len(times), row.clock, np.int64)
        else:
            clocks = np.maximum.accumulate(times)
            np.maximum(clocks, row.clock, out=clocks)
        self._note(found, clocks)
        row.clock = int(clocks[-1])
        row.outcomes += len(clocks)
        self._tell(found, chains, places)

    def _may_close(self, scan: ScannedBatch, rows: Any) -> bool:
        """Return whether an event may be the end of an open start."""
        if not self._starts:
            return False
        compiled, awaits = kernels(), self._starts.awaits
        keys = scan.place_keys
        places = [keys[number] for number in rows[:, compiled.PLACE].tolist()]
        workflows, tasks = scan.texts(rows, compiled.WORKFLOW), scan.texts(rows, compiled.TASK)
        return any(
            awaits(str(place[0]), str(place[1]), str(workflow), task)
            for place, workflow, task in zip(places, workflows, tasks, strict=True)
        )

    def _has_room(self, chains: Sequence[ContextPath | None]) -> bool:
        """Return whether the rows of chains surely fit a commit too."""
        untouched = [chain for chain in chains if chain is not None and not chain.touched]
        rows = len(untouched) * (len(self._contexts.levels) + 2)
        keys = sum(chain.key_bytes for chain in untouched)
        return self._state.touched_bytes + self._contexts.bytes_of(rows, keys) < MOST_BYTES

    def _lanes(self, scan: ScannedBatch, rows: Any) -> _DedupColumns | None:
        """Return the lanes of events.

        None where a spool is new here, a position is not above the last one, or they are too many.
        """
        compiled = kernels()
        order = np.argsort(rows[:, compiled.LANE], kind="stable")
        numbers, positions = rows[order, compiled.LANE], rows[order, compiled.POSITION]
        next_is_same = numbers[1:] == numbers[:-1]
        if bool((next_is_same & (numbers[1:] >= 0) & (positions[1:] <= positions[:-1])).any()):
            return None
        begins = np.flatnonzero(np.concatenate(([True], ~next_is_same)))
        lasts = order[np.append(begins[1:], len(numbers)) - 1]
        begins = begins[numbers[begins] >= 0]  # those below are without an origin
        lasts = lasts[len(lasts) - len(begins) :]
        by_first = np.argsort(order[begins])
        begins, lasts = begins[by_first], lasts[by_first]
        keys = [scan.lane_keys[number] for number in numbers[begins].tolist()]
        seen = list(map(self._deduplicator.positions.get, keys))
        if None in seen:
            return None
        found = _DedupColumns(keys, seen, lasts)  # type: ignore[arg-type]
        before = np.fromiter((each.position for each in found.seen), np.int64, len(keys))
        if bool((positions[begins] <= before).any()) or not _fit(found):
            return None
        return found

    def _note(self, found: _Stretch, clocks: Any) -> None:
        """Note the last position of each lane."""
        keys, every, lasts = found.lanes
        positions = found.rows[lasts, kernels().POSITION].tolist()
        offsets = found.offsets[lasts].tolist()
        for key, seen, position, clock, offset in zip(
            keys, every, positions, clocks[lasts].tolist(), offsets, strict=True
        ):
            if seen.touched:
                seen.position, seen.at, seen.offset = position, clock, offset
                continue
            tenant, workflow_type, spool = key
            origin = str(spool), position
            self._deduplicator.duplicate(str(tenant), str(workflow_type), origin, clock, offset)

    def _tell(self, found: _Stretch, chains: list[ContextPath], places: Any) -> None:
        """Tell every chain what came to it."""
        compiled = kernels()
        order = np.argsort(places, kind="stable")
        begins = np.searchsorted(places[order], np.arange(len(chains)))
        ends = np.append(begins[1:], len(order))
        offsets = found.offsets[order[ends - 1]].tolist()
        for chain, offset in zip(chains, offsets, strict=True):
            self._contexts.touch(chain)
            chain.offset = offset
        policy = only_policy(chains)
        rule = None if policy is None else compiled.rule_of(policy)
        if rule is not None:
            self._contexts.apply_pending()
            weights = self._state.config.weights
            update_many(rule, weights, chains, places, found.rows, found.numbers, compiled)
            return
        together: dict[int, list[int]] = {}
        for place, chain in enumerate(chains):
            together.setdefault(id(chain.pending), []).append(place)
        told = _told(found, chains, places)
        for of in together.values():
            self._contexts.expect(chains[of[0]])
            chains[of[0]].pending.extend(_picked(told, order, begins, ends, of))


def _told(found: _Stretch, chains: list[ContextPath], places: Any) -> list[OutcomeRow]:
    """Return events as outcomes."""
    compiled = kernels()
    said = (compiled.CONFIDENCE, compiled.GAIN, compiled.COST, compiled.EXECUTION)
    return list(
        zip(
            *(found.numbers[:, column].tolist() for column in said),
            *(found.rows[:, column].tolist() for column in (compiled.AT, compiled.FLAGS)),
            map(chains.__getitem__, places.tolist()),
            strict=True,
        )
    )


def _fit(lanes: _DedupColumns) -> bool:
    """Return whether the rows of lanes fit a commit."""
    new = (key for key, seen in zip(lanes.keys, lanes.seen, strict=True) if not seen.touched)
    return sum(map(most_bytes, new)) <= MOST_LANE_BYTES  # type: ignore[arg-type]


def _scan_records(
    batch: RecordBatch, records: range, levels: Sequence[str], compiled: Any
) -> ScannedBatch | None:
    """Return what is in some records; None where one has no value: those are looked at singly."""
    try:
        return ScannedBatch(batch, records, levels, compiled)
    except TypeError:
        return None


def _picked(
    told: Sequence[Any], order: Any, begins: Any, ends: Any, places: Sequence[int]
) -> list[Any]:
    """Return the outcomes of some chains, in the order in which they came."""
    if len(places) == len(begins):
        return list(told)
    parts = [order[begins[place] : ends[place]] for place in places]
    events = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
    return [told[event] for event in events.tolist()]
