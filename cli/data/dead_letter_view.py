"""Formats a dead letter for a terminal and for JSON, with its untrusted bytes escaped."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from cli.support.output import printable
from cli.support.times import iso_moment
from topics.catalogue import worker_of

if TYPE_CHECKING:
    from topics.dead_letters.log import Handling
    from topics.dead_letters.messages import DeadLetterRecord


def fields(letter: DeadLetterRecord, handling: Handling | None) -> dict[str, Any]:
    """Return the fields of a dead letter without its bytes."""
    source = letter.source
    return {
        "at": letter.at,
        "refused_at": letter.refused_at,
        "group": letter.group,
        "reason": letter.reason,
        "topic": source and source.topic,
        "partition": source and source.partition,
        "offset": source and source.offset,
        "timestamp": source and source.timestamp,
        "frame_place": source and source.place,
        "key": None if letter.key is None else letter.key.decode(errors="backslashreplace"),
        "bytes": len(letter.value),
        "truncated_from": letter.truncated_from,
        "truncated_sha256": letter.truncated_sha256,
        "handled": handling and handling.did,
        "handled_at": handling and handling.at,
    }


def with_value(letter: DeadLetterRecord, handling: Handling | None) -> dict[str, Any]:
    """Return all fields of a dead letter; bytes that are not UTF-8 as `value_base64`."""
    try:
        value = {"value": letter.value.decode()}
    except UnicodeDecodeError:
        value = {"value_base64": base64.b64encode(letter.value).decode()}
    return fields(letter, handling) | value


def row(letter: DeadLetterRecord, handling: Handling | None) -> dict[str, str]:
    """Return a dead letter as a row of the list."""
    source = letter.source
    place = "" if source is None or source.place is None else f"[{source.place}]"
    reason = " ".join(printable(letter.reason).split())
    return {
        "at": letter.at,
        "refused": iso_moment(letter.refused_at),
        "group": printable(worker_of(letter.group or "")),
        "source": f"{printable(source.topic)}:{source.partition}:{source.offset}{place}"
        if source
        else "",
        "bytes": str(letter.truncated_from or len(letter.value)),
        "reason": reason if handling is None else f"({handling.did}) {reason}",
    }


def page(letter: DeadLetterRecord, handling: Handling | None) -> list[tuple[str, str]]:
    """Return the fields that are set as text, without the bytes; times in UTC."""
    moments = ("refused_at", "timestamp", "handled_at")
    return [
        (name, iso_moment(value) if name in moments else printable(str(value)))
        for name, value in fields(letter, handling).items()
        if value is not None
    ]
