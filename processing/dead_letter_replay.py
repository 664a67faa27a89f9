"""A dead letter made a record of `headstart.events` again. Pure; who sends it is elsewhere."""

from __future__ import annotations

from headstart.keys import event_key
from learners.registry import DEFAULT, policy
from processing.config import LearningConfig
from processing.records.batch import RecordBatch
from processing.records.decode import decode_record
from processing.records.partitioner import partition_for
from processing.task import PartitionTask
from topics.catalogue import EVENTS, EVENTS_GROUPS, THRESHOLDS_GROUP
from topics.dead_letters.messages import (
    GROUP_HEADER,
    ORIGIN_HEADER,
    DeadLetterRecord,
    OutgoingRecord,
)


class NotReplayable(ValueError):
    """A dead letter that cannot be replayed as it is; the message says what to do."""


def replay_of(
    letter: DeadLetterRecord, corrected: bytes | None, *, epoch: int, partitions: int, now_ms: int
) -> OutgoingRecord:
    """Return the record that replays a dead letter, `corrected` taking the place of its bytes.

    It goes to the partition that owns its key, also where the refused record lay in another one,
    and names the group that refused it. Its lane is its own: a lane that several dead letters
    shared would make a repetition of each that is replayed after a later one. `epoch` is the log
    epoch, `partitions` those of `headstart.events`. Raises `NotReplayable`.
    """
    if letter.source is None or letter.group is None:
        raise NotReplayable("its headers do not say what refused it, and where it came from")
    if letter.source.topic != EVENTS.name:
        raise NotReplayable(
            f"it comes from {letter.source.topic}, where an old record would take the place of "
            f"the newest of its key; only {EVENTS.name} can be replayed to. Drop it"
        )
    if letter.group not in EVENTS_GROUPS:
        raise NotReplayable(
            f"it names the group {letter.group!r}, which reads no events: the record would be sent "
            "and handled by no worker. Drop it"
        )
    if corrected is None and letter.truncated_from is not None:
        raise NotReplayable(
            f"only {len(letter.value)} of its {letter.truncated_from} bytes were kept; "
            "give the event with --file"
        )
    value = letter.value if corrected is None else corrected
    key, partition = _place(value, partitions, now_ms)
    if letter.group == THRESHOLDS_GROUP:
        _learn(RecordBatch(EVENTS.name, partition, 0, 1, [0], [now_ms], [key], [value]), partitions)
    lane = f"dead-letters/{epoch}/{letter.partition}/{letter.offset}:0"
    headers = ((GROUP_HEADER, letter.group.encode()), (ORIGIN_HEADER, lane.encode()))
    return OutgoingRecord(partition, key, value, headers)


def _place(value: bytes, partitions: int, now_ms: int) -> tuple[bytes, int]:
    """Return the key of a record's events and the partition that owns it."""
    events, refused = decode_record(value, now_ms)
    if refused:
        raise _again(refused[0].reason)
    owners = {(event.tenant, event.workflow_type) for event in events}
    if len(owners) != 1:
        what = "holds no event" if not owners else "holds events of several keys"
        raise NotReplayable(f"it {what}; give one event, or a frame of one key, with --file")
    ((tenant, workflow_type),) = owners
    return event_key(tenant, workflow_type), partition_for(tenant, workflow_type, partitions)


def _learn(batch: RecordBatch, partitions: int) -> None:
    """Apply a record to a partition that holds nothing yet; raise where its rules refuse it."""
    nothing: dict[bytes, bytes] = {}
    scratch = PartitionTask(
        batch.partition, partitions, 0, LearningConfig(policy(DEFAULT)), nothing.get
    )
    scratch.apply(batch)
    for letter in scratch.commit().dead_letters:
        raise _again(letter.reason)


def _again(reason: str) -> NotReplayable:
    return NotReplayable(f"it would be refused again: {reason}. Give corrected bytes with --file")
