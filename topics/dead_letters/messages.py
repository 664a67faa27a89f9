"""A dead letter as its topic holds it: the headers' names, and the record read back.

Headers follow Kafka Connect's dialect, so that its tools read them. Who makes dead letters is in
processing/records/dead_letters.py, how they are read and marked in topics/dead_letters/log.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from topics.kafka.limits import LARGEST_MS

TOPIC_HEADER: Final = "__connect.errors.topic"
PARTITION_HEADER: Final = "__connect.errors.partition"
OFFSET_HEADER: Final = "__connect.errors.offset"
REASON_HEADER: Final = "__connect.errors.exception.message"
GROUP_HEADER: Final = "headstart.group"
"""On a dead letter: who refused it. On a record of any other topic: the only group it is for."""
TIMESTAMP_HEADER: Final = "headstart.timestamp"
PLACE_HEADER: Final = "headstart.frame.place"
TRUNCATED_HEADER: Final = "headstart.truncated.from"
SHA256_HEADER: Final = "headstart.truncated.sha256"
ORIGIN_HEADER: Final = "headstart.origin"
"""On a record: SPOOL:POSITION, the lane it came by as a whole."""


@dataclass(frozen=True)
class DeadLetterSource:
    """What was refused: a record, or the event at `place` of its frame. `timestamp`: Unix ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    place: int | None


@dataclass(frozen=True)
class DeadLetterRecord:
    """One dead letter. `refused_at`: Unix ms; `truncated_from`: bytes before it was cut.

    `source` and `group` are None where the topic holds a record that no agent of ours wrote.
    """

    partition: int
    offset: int
    refused_at: int
    key: bytes | None
    value: bytes
    reason: str
    group: str | None
    source: DeadLetterSource | None
    truncated_from: int | None
    truncated_sha256: str | None

    @property
    def at(self) -> str:
        """Its name on the command line, PARTITION:OFFSET."""
        return f"{self.partition}:{self.offset}"

    @property
    def identity(self) -> str:
        """What no other dead letter has, even after the topic was recreated."""
        return f"{self.at}@{self.refused_at}"


def parse_dead_letter(record: Any) -> DeadLetterRecord:
    """Return the dead letter in a record of aiokafka's."""
    headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
    return DeadLetterRecord(
        partition=record.partition,
        offset=record.offset,
        refused_at=record.timestamp,
        key=record.key,
        value=record.value or b"",
        reason=headers.get(REASON_HEADER, ""),
        group=headers.get(GROUP_HEADER),
        source=_source(headers),
        truncated_from=_integer(headers, TRUNCATED_HEADER),
        truncated_sha256=headers.get(SHA256_HEADER),
    )


def _source(headers: Mapping[str, str]) -> DeadLetterSource | None:
    topic = headers.get(TOPIC_HEADER)
    partition, offset = _integer(headers, PARTITION_HEADER), _integer(headers, OFFSET_HEADER)
    if topic is None or partition is None or offset is None:
        return None
    timestamp, place = _integer(headers, TIMESTAMP_HEADER), _integer(headers, PLACE_HEADER)
    return DeadLetterSource(topic, partition, offset, timestamp, place)


def _integer(headers: Mapping[str, str], name: str) -> int | None:
    """Return the number in a header; None where there is none that a dead letter of ours has."""
    try:
        found = int(headers[name])
    except (KeyError, ValueError):
        return None
    return found if abs(found) <= LARGEST_MS else None


@dataclass(frozen=True)
class DeadLetterFilter:
    """Which dead letters are meant: each criterion that is not None must hold.

    `group` may leave out the prefix `headstart-`; `topic` is the source's; `reason` is any part of
    it, in any case; `since` is the earliest `refused_at`, Unix ms.
    """

    group: str | None = None
    topic: str | None = None
    reason: str | None = None
    since: int | None = None

    def takes(self, letter: DeadLetterRecord) -> bool:
        """Return whether a dead letter is meant."""
        return (
            (self.group is None or letter.group in (self.group, f"headstart-{self.group}"))
            and (self.topic is None or (letter.source and letter.source.topic) == self.topic)
            and (self.reason is None or self.reason.casefold() in letter.reason.casefold())
            and (self.since is None or letter.refused_at >= self.since)
        )


class OutgoingRecord(NamedTuple):
    """A record to be sent."""

    partition: int
    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]]
