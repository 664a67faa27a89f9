"""The tool calls of a run: which events are calls, and with which arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import cramjam
import orjson

from memory.episodes.canonical import canonical_json, clean_text
from memory.episodes.record import MadeCall
from memory.episodes.run_event import RunEvent

MAX_CALLS: Final = 1_000
"""Calls of an episode; later ones are left out."""
MAX_UNPACKED: Final = 64 + MAX_CALLS * 12_000
"""Bytes that packed calls may have: more is no work of ours."""
_USUALLY: Final = 16_384
"""Bytes that suffice for the calls of nearly all runs."""
_LEVEL: Final = 6


def call_of(event: RunEvent, content: Mapping[str, Any]) -> MadeCall | None:
    """Return the call that an event tells of; None if it tells of none.

    The outcome of a wrong guess names the tool that was called instead, and the call has an event
    of its own, unless the outcome says how the call went.
    """
    if event.event_type != "task_complete" or not event.tool_id:
        return None
    prediction = content.get("prediction")
    if isinstance(prediction, Mapping):
        if prediction.get("failed") is True:
            return None  # the guessed call; the agent's own call follows
        if (
            prediction.get("was_correct") is False
            and event.success is None
            and not _says_how(content)
        ):
            return None
    return MadeCall(
        clean_text(event.tool_id), arguments_text(content.get("arguments")), event.success
    )


def _says_how(content: Mapping[str, Any]) -> bool:
    result = content.get("result")
    return content.get("arguments") is not None or (
        isinstance(result, Mapping) and result.get("execution_time_ms") is not None
    )


def arguments_text(arguments: object) -> str:
    """Return arguments as canonical JSON of an object; text that is no object as `{"$text": ...}`.

    Arguments may be given as JSON text, as model APIs do; none are an empty object.
    """
    if arguments is None or arguments == "":
        return "{}"
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except (orjson.JSONDecodeError, UnicodeEncodeError):
            arguments = {"$text": arguments}
    if not isinstance(arguments, Mapping):
        arguments = {"$value": arguments}
    return canonical_json(arguments)


def pack_calls(calls: Sequence[MadeCall]) -> bytes | None:
    """Return calls as they are stored: zstd of their JSON; None for no calls."""
    if not calls:
        return None
    raw = orjson.dumps([list(call) for call in calls])
    return bytes(cramjam.zstd.compress(raw, level=_LEVEL))


def unpack_calls(packed: bytes | None) -> tuple[MadeCall, ...]:
    """Return packed calls. Raises `ValueError` for bytes that are none, or unpack to too much."""
    if not packed:
        return ()
    try:
        return tuple(MadeCall(*call) for call in orjson.loads(_unpacked(packed)))
    except (cramjam.DecompressionError, orjson.JSONDecodeError, TypeError) as error:
        raise ValueError(f"no packed calls: {error}") from error


def _unpacked(packed: bytes) -> memoryview:
    """Return the content, in a small buffer if it fits: the largest takes long to make."""
    try:
        return _into(bytearray(_USUALLY), packed)
    except cramjam.DecompressionError:
        return _into(bytearray(MAX_UNPACKED), packed)


def _into(target: bytearray, packed: bytes) -> memoryview:
    return memoryview(target)[: cramjam.zstd.decompress_into(packed, target)]
