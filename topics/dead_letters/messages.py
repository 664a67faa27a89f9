"""The format of dead letters: header names and parsing.

Headers follow Kafka Connect, so that its tools read them. `processing.records.dead_letters` creates
dead letters; `topics.dead_letters.log` reads and marks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from topics.catalogue import group_of
from topics.kafka.limits import LARGEST_MS

TOPIC_HEADER: Final = "__connect.errors.topic"
PARTITION_HEADER: Final = "__connect.errors.partition"
OFFSET_HEADER: Final = "__connect.errors.offset"
REASON_HEADER: Final = "__connect.errors.exception.message"
GROUP_HEADER: Final = "headstart.group"
"""On a dead letter: the group that refused it. On other records: the only group it is for."""
TIMESTAMP_HEADER: Final = "headstart.timestamp"
PLACE_HEADER: Final = "headstart.frame.place"
TRUNCATED_HEADER: Final = "headstart.truncated.from"
SHA256_HEADER: Final = "headstart.truncated.sha256"
LOST_UNTIL_HEADER: Final = "headstart.lost.until"
"""The first offset after those that retention deleted unread; the letter has no bytes then."""
ORIGIN_HEADER: Final = "headstart.origin"
"""SPOOL:POSITION: overrides the origins of the record's events (replays of dead letters)."""


@dataclass(frozen=True)
class DeadLetterSource:
    """The refused record, or the event at `place` in its frame. `timestamp`: Unix ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    place: int | None


@dataclass(frozen=True)
class DeadLetterRecord:
    """One dead letter. `refused_at`: Unix ms; `truncated_from`: size before truncation, bytes.

    `source` and `group` are None for a record that no worker wrote.
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
    lost_until: int | None = None
    """It stands for the records from its source up to, not including, this offset."""

    @property
    def at(self) -> str:
        """Its name on the command line, PARTITION:OFFSET."""
        return f"{self.partition}:{self.offset}"

    @property
    def identity(self) -> str:
        """A unique name, also after the topic was recreated."""
        return f"{self.at}@{self.refused_at}"


def parse_dead_letter(record: Any) -> DeadLetterRecord:
    """Return the dead letter in an aiokafka record."""
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
        lost_until=_integer(headers, LOST_UNTIL_HEADER),
    )


def _source(headers: Mapping[str, str]) -> DeadLetterSource | None:
    topic = headers.get(TOPIC_HEADER)
    partition, offset = _integer(headers, PARTITION_HEADER), _integer(headers, OFFSET_HEADER)
    if topic is None or partition is None or offset is None:
        return None
    timestamp, place = _integer(headers, TIMESTAMP_HEADER), _integer(headers, PLACE_HEADER)
    return DeadLetterSource(topic, partition, offset, timestamp, place)


def _integer(headers: Mapping[str, str], name: str) -> int | None:
    """Return the number in a header; None if it is missing, invalid or out of range."""
    try:
        found = int(headers[name])
    except (KeyError, ValueError):
        return None
    return found if abs(found) <= LARGEST_MS else None


@dataclass(frozen=True)
class DeadLetterFilter:
    """Selects dead letters: each criterion that is not None must match.

    `group` may omit the prefix `headstart-`; `topic` is the source's; `reason` is a substring,
    ignoring case; `since` is the earliest `refused_at`, Unix ms.
    """

    group: str | None = None
    topic: str | None = None
    reason: str | None = None
    since: int | None = None

    def takes(self, letter: DeadLetterRecord) -> bool:
        """Return whether a dead letter matches."""
        return (
            (self.group is None or letter.group in (self.group, group_of(self.group)))
            and (self.topic is None or (letter.source and letter.source.topic) == self.topic)
            and (self.reason is None or self.reason.casefold() in letter.reason.casefold())
            and (self.since is None or letter.refused_at >= self.since)
        )


class OutgoingRecord(NamedTuple):
    """A record to send."""

    partition: int
    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]]
