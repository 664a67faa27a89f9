"""Encodes the events of a run as one zstd frame, and decodes it: pure functions, deterministic.

A frame holds a line for each event: a JSON array of its columns, `data` and `extra` as Postgres
writes them, separated by tabs, which JSON text never contains. Times are differences from the event
before. Ids are stored beside the frame: they do not shrink, and SQL asks for them. Tenant, workflow
type and id are those of the episode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import orjson
import zstandard

MAX_UNPACKED: Final = 64_000_000
"""Bytes that a frame may declare; more is not ours, and is refused before memory is taken."""
MAX_WINDOW: Final = 1 << 27
_LEVEL: Final = 9
""".059 of the raw JSON at 0.3 ms a run; level 19 is .056 at twenty times the cost."""


class TraceDamaged(ValueError):
    """A packed run cannot be unpacked; nothing of it may be left out or overwritten."""


class PackedEvent(NamedTuple):
    """One stored event, without what it shares with its run. `data` and `extra`: JSON text."""

    timestamp: int
    """Unix ms."""
    id: str
    event_type: str
    task_id: str | None
    user_id: str | None
    agent_id: str | None
    session_id: str | None
    tool_id: str | None
    success: bool | None
    confidence: float | None
    data: str
    extra: str | None


class TraceDictionary(NamedTuple):
    """A trained dictionary of one tenant."""

    id: int
    runs: int
    """That it was trained on."""
    content: bytes


class RunTrace(NamedTuple):
    """What is stored of a packed run."""

    frame: bytes
    ids: list[str]
    types: list[str]
    """Each once, sorted."""


def in_order(events: Iterable[PackedEvent]) -> list[PackedEvent]:
    """Return events in the order of (timestamp, id), each id once."""
    return sorted({event.id: event for event in events}.values(), key=lambda each: each[:2])


def encode_events(events: Sequence[PackedEvent]) -> bytes:
    """Return ordered events as the content of a frame."""
    before, lines = 0, []
    for event in events:
        head = orjson.dumps([event.timestamp - before, *event[2:10]])
        before = event.timestamp
        lines.append(b"%b\t%b\t%b\n" % (head, event.data.encode(), (event.extra or "").encode()))
    return b"".join(lines)


def decode_events(content: bytes, ids: Sequence[str]) -> list[PackedEvent]:
    """Return the events of a frame's content. Raises `TraceDamaged`."""
    try:
        return list(_decoded(content, ids))
    except (ValueError, TypeError) as error:
        raise TraceDamaged(f"not the events of a run: {error}") from error


def _decoded(content: bytes, ids: Sequence[str]) -> Iterator[PackedEvent]:
    at = 0
    for own, line in zip(ids, content.decode().split("\n")[:-1], strict=True):
        head, data, extra = line.split("\t")
        after, *columns = orjson.loads(head)
        at += after
        yield PackedEvent._make((at, own, *columns, data, extra or None))


class TraceCodec:
    """Packs and unpacks runs; with a dictionary, frames that name it. Not for several threads."""

    def __init__(self, dictionary: TraceDictionary | None = None) -> None:
        own: dict[str, Any] = {}
        if dictionary is not None:
            own["dict_data"] = zstandard.ZstdCompressionDict(dictionary.content)
        self._compress = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, **own)
        self._decompress = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW, **own)

    def pack(self, events: Iterable[PackedEvent]) -> RunTrace:
        """Return what is stored of a run with these events."""
        ordered = in_order(events)
        frame = self._compress.compress(encode_events(ordered))
        types = sorted({event.event_type for event in ordered})
        return RunTrace(frame, [event.id for event in ordered], types)

    def unpack(self, frame: bytes, ids: Sequence[str]) -> list[PackedEvent]:
        """Return the events of a run in order. Raises `TraceDamaged`."""
        size = unpacked_size(frame)
        try:
            content = self._decompress.decompress(
                frame, max_output_size=size, read_across_frames=False, allow_extra_data=False
            )
        except (zstandard.ZstdError, MemoryError) as error:
            raise TraceDamaged(f"damaged zstd: {error}") from error
        return decode_events(content, ids)


def dictionary_of(frame: bytes) -> int:
    """Return the id of the dictionary that a frame needs; 0: none. Raises `TraceDamaged`."""
    return int(_header(frame).dict_id)


def unpacked_size(frame: bytes) -> int:
    """Return the size that a frame's header declares. Raises `TraceDamaged` if it is too large."""
    size = int(_header(frame).content_size)
    if size > MAX_UNPACKED:  # an absent size reads as the largest number
        raise TraceDamaged(f"its frame declares {size:,} bytes, more than {MAX_UNPACKED:,}")
    return size


def _header(frame: bytes) -> Any:
    try:
        return zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError as error:
        raise TraceDamaged(f"no zstd frame: {error}") from error
