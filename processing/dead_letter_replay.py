"""Turns a dead letter into a record of `headstart.events` again. Pure."""

from __future__ import annotations

from headstart.keys import event_key
from learners.registry import DEFAULT, policy
from processing.config import LearningConfig
from processing.records.batch import RecordBatch
from processing.records.decode import decode_record
from processing.records.partitioner import partition_for
from processing.task import PartitionTask
from topics.catalogue import DECISIONS, EVENTS, EVENTS_GROUPS, THRESHOLDS_GROUP
from topics.dead_letters.messages import (
    GROUP_HEADER,
    ORIGIN_HEADER,
    DeadLetterRecord,
    OutgoingRecord,
)


class NotReplayable(ValueError):
    """A dead letter that cannot be replayed as it is; the message has the remedy."""


def replay_of(
    letter: DeadLetterRecord, corrected: bytes | None, *, epoch: int, partitions: int, now_ms: int
) -> OutgoingRecord:
    """Return the record that replays a dead letter, or `corrected` in place of its bytes.

    It goes to the partition that owns its key, even if the rejected record lay in another one, and
    names the group that rejected it. Its origin is unique: with one that several dead letters
    share, each that is replayed after a later one would be a duplicate. `epoch` is the log epoch,
    `partitions` those of `headstart.events`. Raises `NotReplayable`.
    """
    if letter.source is None or letter.group is None:
        raise NotReplayable("its headers do not name what refused it, and where it came from")
    if letter.lost_until is not None:
        raise NotReplayable(
            "it stands for records that retention deleted before they were read: nothing is left "
            "to replay. Drop it"
        )
    if letter.source.topic == DECISIONS.name:
        raise NotReplayable(
            f"it comes from {DECISIONS.name}, and later decisions of its executor are learned "
            "already: an older one would be a repeat. Drop it"
        )
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
    key, partition = _destination(value, partitions, now_ms)
    if letter.group == THRESHOLDS_GROUP:
        _try(RecordBatch(EVENTS.name, partition, 0, 1, [0], [now_ms], [key], [value]), partitions)
    origin = f"dead-letters/{epoch}/{letter.partition}/{letter.offset}:0"
    headers = ((GROUP_HEADER, letter.group.encode()), (ORIGIN_HEADER, origin.encode()))
    return OutgoingRecord(partition, key, value, headers)


def _destination(value: bytes, partitions: int, now_ms: int) -> tuple[bytes, int]:
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


def _try(batch: RecordBatch, partitions: int) -> None:
    """Apply a record to an empty partition; raise `NotReplayable` where that rejects it."""
    table: dict[bytes, bytes] = {}
    scratch = PartitionTask(
        batch.partition, partitions, 0, LearningConfig(policy(DEFAULT)), table.get
    )
    scratch.apply(batch)
    for letter in scratch.commit().dead_letters:
        raise _again(letter.reason)


def _again(reason: str) -> NotReplayable:
    return NotReplayable(f"it would be refused again: {reason}. Give corrected bytes with --file")
