"""The event record: its fields, limits, ids, and the defaults of missing fields.

The types below are the single source of truth: the client validates with them, the service
derives its decoder and the published JSON Schema from them.
"""

# No `from __future__ import annotations` here: it would hide Required from TypedDict.
import os
import re
import threading
import time
from collections.abc import Mapping
from random import Random
from typing import Annotated, Any, Final, Literal, NamedTuple, Required, TypedDict

MAX_EVENT_BYTES = 262_144
"""Largest event, in bytes of JSON."""
MAX_DEPTH = 32
"""Deepest nesting of arrays and objects, the event itself being depth 1."""
MAX_IDENTIFIER = 256
"""Longest identifier, in characters."""
MAX_CLOCK_SKEW_MS = 3_600_000
"""How far ahead of its record's Kafka timestamp an event's own timestamp may be."""
FIRST_MS = 946_684_800_000
LAST_MS = 253_402_300_799_999
"""The earliest and latest timestamp, 2000-01-01 and the end of 9999, in Unix milliseconds: what is
outside is in another unit."""

EventType = Literal[
    "speculation_start",
    "task_complete",
    "ail_decision",
    "hil_decision",
    "workflow_complete",
    "user_feedback",
]


START_NEEDS: Final = {
    "task_id": "is missing; a speculation_start is joined to its completion by it",
    "confidence": "is missing; nothing can be learned from this speculation_start",
}
"""Further required fields of a `speculation_start`, with the error without them. Emitters refuse
such an event; the service stores one from elsewhere, and learns nothing from it."""


class Text(NamedTuple):
    """Bounds of a string, in characters, and the pattern that it must match."""

    min: int
    max: int
    pattern: str | None = None


class Bounds(NamedTuple):
    """Inclusive bounds of a number."""

    min: float
    max: float | None = None


# \x1f separates the parts of keys, so no identifier may hold it.
Identifier = Annotated[str, Text(1, MAX_IDENTIFIER, r"^[^\u0000\u001f]*$")]
_HEX = "[0-9a-fA-F]"
EventId = Annotated[
    str, Text(32, 36, rf"^({_HEX}{{8}}-({_HEX}{{4}}-){{3}}{_HEX}{{12}}|{_HEX}{{32}})$")
]
Confidence = Annotated[float, Bounds(0.0, 1.0)]
UnixMs = Annotated[int, Bounds(FIRST_MS, LAST_MS)]
Milliseconds = Annotated[float, Bounds(0.0)]
SpoolId = Annotated[str, Text(1, 64, r"^[^\u0000\u001f]*$")]
Position = Annotated[int, Bounds(0, 2**63 - 1)]


class Prediction(TypedDict, total=False):
    """A guessed next tool call. Logged also when the executor declined to speculate.

    `was_correct`: starting it saves latency. So it is false where the guess was right, but the
    guessed call was started and gave no result that could be used; `failed` is then true.
    `not_startable`: why it could not have been started, whatever the threshold: `mode`, `tool` or
    `budget`, or a reason of the executor's own. Absent where the threshold alone decided.
    `calibrated`: of the guesses with this confidence that share is right, as declared by the
    executor; the decision believed it in a cold start. `evidence`: the basis of the confidence,
    such as `tries`, the number of observations.
    """

    tool_id: Identifier
    mode: Literal["speculative", "suggestion", "explicit"]
    reasoning: str
    was_correct: bool
    speculated: bool
    failed: bool
    not_startable: Identifier
    calibrated: bool
    evidence: dict[str, Any]


class Result(TypedDict, total=False):
    """What a task gave. `gain_ms`: latency a hit saves; `cost_ms`: what a miss wastes."""

    output: Any
    execution_time_ms: Milliseconds
    gain_ms: Milliseconds
    cost_ms: Milliseconds


class Decision(TypedDict, total=False):
    """An agent-in-the-loop or human-in-the-loop decision."""

    type: str
    action: str
    reasoning: str
    accepted: bool


class Attachment(TypedDict, total=False):
    """A pointer to bytes that live elsewhere; never the bytes."""

    uri: Required[str]
    type: str
    hash: str


class Data(TypedDict, total=False):
    """The event's own content; unknown fields are kept."""

    context: dict[str, Any]
    query: str
    query_hash: str
    response: str
    concepts: list[str]
    domains: list[str]
    plan: Any
    agents_used: list[str]
    insights: list[str]
    attachments: list[Attachment]
    prediction: Prediction
    result: Result
    decision: Decision
    outcome: Literal["success", "failure", "partial", "aborted"]
    target_id: str
    accepted: bool
    reward: float
    source: Literal["user", "system"]


class Event(TypedDict, total=False):
    """One episodic event, as it travels (JSON object). Unknown fields survive the round trip.

    `timestamp` is in Unix milliseconds. `origin` is [spool id, position]: transport only, never
    stored; positions of one spool and key only grow, and one that does not is a duplicate.
    An optional field may be absent or null.
    """

    id: Required[EventId]
    event_type: Required[EventType]
    tenant: Required[Identifier]
    workflow_type: Required[Identifier]
    workflow_id: Required[Identifier]
    timestamp: Required[UnixMs]
    task_id: Identifier
    user_id: Identifier
    agent_id: Identifier
    session_id: Identifier
    tool_id: Identifier
    success: bool
    confidence: Confidence
    data: Data
    origin: tuple[SpoolId, Position]


class InvalidEvent(ValueError):
    """An event breaks its contract.

    `field` is a dotted path ("data.prediction.mode"), `reason` describes the error.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


MAX_STEP_BACK_MS = 10_000
"""Ids continue from the latest one if the clock goes back by at most so many ms, else restart."""
_TAIL_BITS = 74
_LOW_BITS = 62
_LOW = (1 << _LOW_BITS) - 1
_LAYOUT = 0x7000_8000_0000_0000_0000
"""A UUID's version and variant, in its last 80 bits; the other 74 are the tail."""


class _Ids:
    """Monotonic UUIDv7s (RFC 9562, section 6.2, method 2: monotonic random).

    The first id of a millisecond has a random tail; each further one has a tail that is larger by a
    random step. Thread-safe, and safe in a signal handler: the lock is reentrant.
    """

    def __init__(self, random: Random) -> None:
        self._bits = random.getrandbits
        self._lock = threading.RLock()
        self._ms, self._tail = -1, 0

    def take(self, now_ms: int, max_step_back_ms: int) -> str:
        """Return the next id; its time is the latest id's if that is a little ahead."""
        with self._lock:
            if 0 <= self._ms - now_ms <= max_step_back_ms:
                now_ms = self._ms
                tail = self._tail + 1 + self._bits(32)
                if tail >> _TAIL_BITS:  # the tail overflows: use the next millisecond
                    now_ms, tail = now_ms + 1, self._bits(_TAIL_BITS)
            else:
                tail = self._bits(_TAIL_BITS)
            self._ms, self._tail = now_ms, tail
        number = (
            (now_ms & 0xFFFF_FFFF_FFFF) << 80 | _LAYOUT
            | tail >> _LOW_BITS << 64 | tail & _LOW
        )  # fmt: skip
        raw = number.to_bytes(16, "big")
        return f"{raw[:4].hex()}-{raw[4:10].hex('-', 2)}-{raw[10:].hex()}"


def _begin() -> None:
    """Create the generators; a forked child needs other random bits and a free lock."""
    global _of_clock, _of_time
    random = Random()  # seeded by the system, unlike a global `random` that a program may seed
    _of_clock, _of_time = _Ids(random), _Ids(random)


_of_clock: _Ids
_of_time: _Ids
_begin()
os.register_at_fork(after_in_child=_begin)


def new_id(now_ms: int | None = None) -> str:
    """Return a UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then 74 increasing bits.

    The ids of one process sort by creation, also within a millisecond and if the clock goes back by
    up to `MAX_STEP_BACK_MS`. With `now_ms` the id has exactly this time; then only consecutive ids
    of one time are in order.
    """
    if now_ms is None:
        return _of_clock.take(time.time_ns() // 1_000_000, MAX_STEP_BACK_MS)
    return _of_time.take(now_ms, 0)


def stamp(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `fields` with `id`, `timestamp` and `tenant` filled in where missing."""
    event = dict(fields)
    fill_in(event, time.time_ns() // 1_000_000)
    return event


def fill_in(event: dict[str, Any], now_ms: int) -> bool:
    """Fill in `id`, `timestamp` and `tenant` where missing; `now_ms` in Unix ms.

    Return whether the id was.
    """
    if event.get("timestamp") is None:
        event["timestamp"] = now_ms
    if event.get("tenant") is None:
        event["tenant"] = "default"
    if event.get("id") is None:
        event["id"] = _of_clock.take(now_ms, MAX_STEP_BACK_MS)
        return True
    return False


_NAMED = re.compile(r"\A[\w.-]{1,64}\Z")


def field_name(parent: str, key: object) -> str:
    """Return the dotted name of `key` below `parent`, safe to print."""
    text = key if isinstance(key, str) and _NAMED.match(key) else repr(key)[:64]
    return f"{parent}.{text}" if parent else str(text)
