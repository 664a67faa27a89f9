"""Which records of the old log the new one needs, and for which consumer group. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from processing.records.headers import is_for_group
from replay.backup.saved_records import Headers
from topics.catalogue import EPISODES_GROUP
from topics.control.messages import Purge, decode_control, is_control
from topics.dead_letters.messages import GROUP_HEADER
from topics.models.records import (
    MARKER_KEY,
    NotAModel,
    PartitionMarker,
    decode_marker,
    decode_model,
    first_needed,
    is_ahead,
    is_model_key,
)

_NO_GROUP: Final = b"-"


def headers_of_event(record: Any, applied: int) -> Headers | None:
    """Return the headers that a record of `headstart.events` gets; None: it is left out.

    `applied`: the last offset of its partition that thresholds have learned from. A record up to
    that is carried over for the episodes only, because the rows have it.
    """
    headers = tuple(record.headers)
    if record.offset > applied:
        return headers
    if is_control(headers):
        # The event sink carries out purges, whichever group their header names.
        return (*headers, (GROUP_HEADER, _NO_GROUP)) if _is_purge(record.value) else None
    if not is_for_group(headers, EPISODES_GROUP):
        return None
    return (*headers, (GROUP_HEADER, EPISODES_GROUP.encode()))


def _is_purge(value: bytes | None) -> bool:
    with suppress(ValueError):
        return isinstance(decode_control(value or b""), Purge)
    return False


@dataclass
class PartitionStates:
    """The newest state of each shared model in a partition of `headstart.models`.

    `end`: of the same partition of `headstart.decisions`; later states were not learned from it.
    """

    epoch: int
    end: int
    newest: dict[bytes, Any] = field(default_factory=dict)
    """By key the record with the state."""
    versions: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    markers: list[PartitionMarker] = field(default_factory=list)

    def add(self, record: Any) -> None:
        """Take in a record of the topic, in any order; one that cannot be read is left out.

        Raises `NewerModel`, which must not be lost.
        """
        if record.key == MARKER_KEY:
            marker = decode_marker(record.value)
            if marker and (marker.epoch, marker.reached) <= (self.epoch, self.end):
                self.markers.append(marker)
            return
        if not is_model_key(record.key):
            return
        try:
            version = decode_model(record.value).version
        except NotAModel as error:
            if type(error) is not NotAModel:
                raise
            return
        held = self.versions.get(record.key, (0, -2))
        if not is_ahead(version, self.epoch, self.end) and version > held:
            self.newest[record.key], self.versions[record.key] = record, version

    def needed(self) -> int:
        """Return the offset of the first decision that a state may lack."""
        return first_needed(self.markers, self.versions, self.epoch)

    def lacks(self, record: Any) -> bool:
        """Return whether a decision from there on is not in the state of its model."""
        epoch, offset = self.versions.get(record.key or b"", (0, -1))
        return epoch != self.epoch or record.offset > offset


def first_needed_events(
    applied: Mapping[int, int], stored: Mapping[int, int], begin: Mapping[int, int]
) -> dict[int, int]:
    """Return by partition the first offset that the new log needs.

    `applied`: the last offset that thresholds have learned from, by partition; `stored`: the first
    one that Postgres lacks; `begin`: the first one that the log still has.
    """
    return {n: max(begin[n], min(last + 1, stored.get(n, 0))) for n, last in applied.items()}
