"""Parses fields of a hash of thresholds, and compares them with the table. Pure.

Redis is a cache of the table: a value that the table cannot have published is an error in Redis. It
is reported and replaced by the table's value.
"""

from __future__ import annotations

from math import nextafter
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import unquote

import msgspec
import orjson

from headstart.keys import DEFAULT_PATH, context_paths, redis_key
from sinks.redis.thresholds import encode_value
from topics.kafka.limits import LARGEST_MS
from topics.schema.json_schema import PublishedThreshold
from topics.schema.meaning import same_threshold

FEWEST_COUNTS: Final = 11
"""Numbers in the counts of the first version; later ones were appended, and are 0 where absent."""
MOST_BYTES: Final = 65_536
"""A longer value is unreadable: those of Headstart have a few hundred bytes."""

Fault = Literal[
    "missing", "behind", "differing", "newer", "outdated", "unknown", "unreadable", "expired"
]  # fmt: skip
FieldState = Fault | Literal["ahead"]
"""`ahead`: newer than the table, and may follow from events in the log."""

EXPLAINED: Final[dict[str, str]] = {
    "missing": "Redis does not have it",
    "behind": "Redis has an older version than the table",
    "differing": "Redis has another value than the table, at the same version",
    "newer": "Redis has a version that the log never had",
    "outdated": "Redis has a context of an earlier log epoch, which the table does not have",
    "unknown": "Redis has a context that the table does not have",
    "unreadable": "the value cannot be read",
    "expired": "Redis has the mark of a deletion of which the table has no mark any more",
}


class Field(NamedTuple):
    """One field of a hash of thresholds: a context, or a tenant's default."""

    tenant: str
    workflow_type: str
    path: str


class Reach(NamedTuple):
    """Progress of the table: the log epoch and the last applied offset."""

    epoch: int
    applied_offset: int


_Confidence = Annotated[float, msgspec.Meta(ge=0.0, le=nextafter(1.0, 2.0))]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Moment = Annotated[int, msgspec.Meta(ge=-LARGEST_MS, le=LARGEST_MS)]


class _Version(msgspec.Struct):
    epoch: int
    offset: int
    deleted: bool = False


class _Value(_Version, kw_only=True):
    speculate: _Confidence
    suggest: _Confidence
    outcomes: _Count
    learner: str = ""
    at: _Moment = 0
    gain: float = 0.0
    cost: float = 0.0
    counts: list[_Count] | None = None
    deviation: dict[str, float] | None = None


class UnreadableValue(ValueError):
    """A stored value is invalid; the message contains the reason."""


def read_stored(raw: bytes) -> dict[str, Any]:
    """Parse a field's value. Raises `UnreadableValue`."""
    if len(raw) > MOST_BYTES:
        raise UnreadableValue(f"it has more than {MOST_BYTES:,} bytes")
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise UnreadableValue(f"not JSON: {error}") from error
    try:
        if not msgspec.convert(value, _Version).deleted:
            parsed = msgspec.convert(value, _Value)
            value.setdefault("learner", parsed.learner)
            value.setdefault("at", parsed.at)
            _check_counts(parsed.counts)
    except msgspec.ValidationError as error:
        raise UnreadableValue(str(error)) from error
    found: dict[str, Any] = value
    return found


def _check_counts(counts: list[int] | None) -> None:
    """Refuse a list that was cut: the counts that it lacks would read as zeros."""
    if counts is not None and len(counts) < FEWEST_COUNTS:
        raise UnreadableValue(f"counts has {len(counts)} of at least {FEWEST_COUNTS} numbers")


def classify(
    expected: PublishedThreshold | None, raw: bytes | None, reach: Reach, *, marks: bool = False
) -> FieldState | None:
    """Return what is wrong with a field, None if it is correct.

    `marks`: the table was read with the marks of deleted contexts, so that a mark of which it has
    no value is `expired`.
    `expected`: the context's threshold in the table, None if it has none. It must have been read
    after `raw`, together with `reach`; otherwise a value published in between is taken for an
    error.
    """
    if raw is None:
        return None if expected is None or expected.deleted else "missing"
    try:
        value = read_stored(raw)
    except UnreadableValue:
        return "unreadable"
    version = value["epoch"], value["offset"]
    right = (-1, -2) if expected is None else (expected.epoch, expected.offset)
    if version < right:
        return "behind"
    if version == right:
        assert expected is not None
        return None if same_threshold(value, orjson.loads(encode_value(expected))) else "differing"
    if version[0] == reach.epoch and version[1] > reach.applied_offset:
        return "ahead"
    if expected is not None:
        return "newer"
    if value.get("deleted") and version <= reach:  # readers ignore it
        return "expired" if marks else None
    return "outdated" if version[0] < reach.epoch else "unknown"


def classify_ahead(raw: bytes, log_end: int, *, known: bool) -> Fault | None:
    """Return what is wrong with a value that is `ahead`, given the end of its log.

    `log_end`: the next offset of the partition's log, read after the value. `known`: whether the
    table has the context. A version before `log_end` may be published ahead of its row, or by the
    next owner of the partition: it is left unchanged.
    """
    if read_stored(raw)["offset"] < log_end:
        return None
    return "newer" if known else "unknown"


def field_of(key: bytes, name: bytes) -> Field | None:
    """Return the context of a field; None if it cannot be one (names with an exclamation mark)."""
    owner = owner_of(key)
    if owner is None or name.startswith(b"!"):
        return None
    try:
        field = Field(*owner, name.decode())
    except UnicodeDecodeError:
        return None
    return field if _is_path(field) else None


def owner_of(key: bytes) -> tuple[str, str] | None:
    """Return the tenant and workflow type of a hash of thresholds; None for any other key."""
    try:
        match [unquote(part, errors="strict") for part in key.decode().split(":")]:
            case ["headstart", "thresholds", tenant, workflow_type]:
                ours = redis_key(tenant, workflow_type).encode() == key
                return (tenant, workflow_type) if ours else None
    except UnicodeDecodeError:
        pass
    return None


def _is_path(field: Field) -> bool:
    if not field.workflow_type:
        return field.path == DEFAULT_PATH
    first, *finer = field.path.split("/")
    known = first == context_paths(field.workflow_type, lambda _level: None)[0]
    return known and all(each.partition("=")[0] and "=" in each for each in finer)
