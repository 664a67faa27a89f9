"""A partition taken through all its logs, rebuilds included; and an operator who rebuilds one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from processing.control.rebuild_state import KEYS
from processing.rebuild import digest_of, staged_parts
from processing.records.batch import RecordBatch
from processing.state.rows import with_version
from replay.log.live_table import Rows, live
from replay.log.replayed_partition import EpochPartition, ReplayedPartition
from tests.simulation.broker import PARTITIONS, Record, batch_of
from tests.simulation.faults import Rebuild as RebuildFault
from tests.simulation.steering import OPERATORS_KEY, Steering, said_now
from tests.simulation.world import World
from topics.catalogue import EVENTS
from topics.control.messages import Rebuild, Staged, control_records


def followed(
    world: World,
    partition: int,
    last: int | None = None,
    change: Callable[[list[Record]], list[Record]] = list,
) -> ReplayedPartition:
    """Return one plain pass over everything that the logs held, of the present one `last` records
    at the most; `change`: what to make of the records before."""
    rows: Rows = {}
    for epoch, broker in world.past:
        records = change(broker.logs[EVENTS.name][partition].everything)
        place = EpochPartition(partition, PARTITIONS, epoch)
        rows = live(_through(world, _adopted(rows, epoch), records, place).table)
    epoch = world.epoch.number
    records = change(world.broker.logs[EVENTS.name][partition].everything[:last])
    return _through(
        world, _adopted(rows, epoch), records, EpochPartition(partition, PARTITIONS, epoch)
    )


def _adopted(rows: Rows, epoch: int) -> Rows:
    return {key: with_version(row, epoch, -1) for key, row in rows.items()}


def _through(
    world: World, rows: Rows, records: Sequence[Record], place: EpochPartition
) -> ReplayedPartition:
    following = ReplayedPartition(place, world.rules, rows)
    if not records:
        return following
    for takeover in following.apply(_batch(place.partition, records)):
        part = [record for record in records if record.offset in takeover.log]
        takeover.gather(_batch(place.partition, part))
        if takeover.begin():
            takeover.apply(_batch(place.partition, part))
    return following


def _batch(partition: int, records: Sequence[Record]) -> RecordBatch:
    return batch_of(EVENTS.name, partition, 0, 0, records)


def rebuild(world: World, fault: RebuildFault) -> None:
    """Send what the log gives for a partition, as of some records ago, as its table."""
    length = len(world.broker.logs[EVENTS.name][fault.partition].everything)
    fresh = followed(world, fault.partition, max(0, length - fault.ago))
    rows = [(key, row) for key, row in live(fresh.table).items() if key not in KEYS]
    id, at = said_now(world)
    parts = list(staged_parts(rows))
    staged = [Staged(id, at, place, tuple(part)) for place, part in enumerate(parts)]
    replacement = Rebuild(
        id, at, world.epoch.number, fresh.applied_offset, len(parts), digest_of(rows),
        world.rules.digest,
    )  # fmt: skip
    records = [
        record
        for control in (*staged, replacement)
        for record in control_records(control, [fault.partition], OPERATORS_KEY)
    ]
    Steering(world, records, signed=True)
