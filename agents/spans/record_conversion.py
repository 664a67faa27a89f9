"""Frames of events from records of a topic of spans: the agent without its I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import orjson

from headstart.events.frames import cut_frames, encode_frame
from headstart.keys import event_key
from headstart.partitioner import partition_for_key
from headstart.scrubbing.scrubber import Scrubber, Scrubbing
from processing.records.batch import RecordBatch
from processing.records.dead_letters import DeadLetter, dead_letter
from processing.records.decode import Rejection
from processing.records.headers import is_for_group
from topics.catalogue import SPANS_GROUP
from topics.dead_letters.messages import OutgoingRecord
from topics.spans.episodes import episodes
from topics.spans.records import UNEXPECTED, SpansUnreadable, described, read_spans

_SPANS_OF_A_RECORD: Final = 1 << 16
"""More than fit a record; positions of one partition's events grow with its offsets."""


@dataclass
class ConvertedRecords:
    """What some records of one partition give."""

    records: list[OutgoingRecord] = field(default_factory=list)
    events: int = 0
    dead_letters: list[DeadLetter] = field(default_factory=list)


class RecordConversion:
    """Converts records to scrubbed events of `headstart.events`. Not thread-safe.

    Each event has an origin that is made of the offset of its record, so that workers recognise
    events of a record that was read again.
    """

    def __init__(self, epoch: int, partitions: int) -> None:
        """`epoch`: the log epoch; `partitions`: of `headstart.events`."""
        self._epoch, self._partitions = epoch, partitions
        self._scrub = Scrubber(Scrubbing())

    def convert(self, batch: RecordBatch, positions: Iterable[int]) -> ConvertedRecords:
        """Return the events of the records at some positions. Raises `ProtobufMissing`."""
        made = ConvertedRecords()
        by_key: dict[bytes, list[bytes]] = {}
        for position in positions:
            headers = batch.headers.get(batch.offsets[position])
            if not is_for_group(headers, SPANS_GROUP):
                continue
            for key, event in self._events(batch, position, made):
                by_key.setdefault(key, []).append(event)
        for key, events in by_key.items():
            made.events += len(events)
            partition = partition_for_key(key, self._partitions)
            made.records += [
                OutgoingRecord(partition, key, encode_frame(frame), ())
                for frame in cut_frames(events)
            ]
        return made

    def _events(
        self, batch: RecordBatch, position: int, made: ConvertedRecords
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the events of a record with their keys; what cannot be read is a dead letter."""
        try:
            found = episodes(read_spans(batch.values[position]), batch.timestamps[position])
        except (SpansUnreadable, *UNEXPECTED) as error:
            why = str(error) if isinstance(error, SpansUnreadable) else described(error)
            self._refuse(made, batch, position, why)
            return
        refused = [reason for _, reason in found.refused]
        spool, offset = self._spool(batch.topic, batch.partition), batch.offsets[position]
        for number, event in enumerate(found.events):
            event["origin"] = [spool, offset * _SPANS_OF_A_RECORD + number]
            try:
                encoded = self._scrub(orjson.dumps(event))
                yield event_key(event["tenant"], event["workflow_type"]), encoded
            except UNEXPECTED as error:
                refused.append(f"span {event['data']['span']['span_id']}: {described(error)}")
        if refused:
            self._refuse(made, batch, position, f"{len(refused)} spans: {'; '.join(refused[:3])}")

    def _refuse(
        self, made: ConvertedRecords, batch: RecordBatch, position: int, reason: str
    ) -> None:
        rejection = Rejection(bytes(batch.values[position] or b""), reason, None)
        made.dead_letters.append(dead_letter(batch, position, rejection, SPANS_GROUP))

    def _spool(self, topic: str, partition: int) -> str:
        """Return the spool id of a partition's events."""
        digest = blake2b(f"{self._epoch}\0{topic}\0{partition}".encode(), digest_size=12)
        return f"spans-{digest.hexdigest()}"
