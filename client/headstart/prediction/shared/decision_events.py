"""The events of the topic of decisions: what executors emit and the worker learns from.

`call_decision`, content: `executor`, a random id of the process, e and 16 hexadecimal digits;
`sequence`, its running number from 1; `check`, a hash that differs between executors with different
keys; `writer`, a keyed hash of the user, or of the run where no user is known; `record`,
`record_bytes()` as hexadecimal digits.

`shared_value`, content: `check`; `kind`, "constant" or "skeleton"; `hash`; `value`, the JSON text
of the constant or the skeleton (`value_texts`); `salt`, of the hash, s and 32 hexadecimal digits,
none without a key: the worker checks by it, without the key, that the hash is of this value.

Hashes are h and 15 hexadecimal digits: the scrubber, through which all events pass, finds neither
a card number nor a key in these forms, as it may in digits alone and in base64.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headstart.prediction.decision_record import DecisionRecord
from headstart.prediction.shared.invalid_decision import InvalidDecision
from headstart.prediction.shared.record_limits import LARGEST_RECORD
from headstart.prediction.shared.record_reading import read_record
from headstart.prediction.shared.value_texts import verified_text
from headstart.prediction.stable_hash import SALT_BYTES

CALL_DECISION: Final = "call_decision"
SHARED_VALUE: Final = "shared_value"
CONSTANT: Final = "constant"
SKELETON: Final = "skeleton"
LARGEST_SEQUENCE: Final = (1 << 53) - 1
_HASH: Final = re.compile(r"h[0-9a-f]{15}")
_EXECUTOR: Final = re.compile(r"e[0-9a-f]{16}")
_SALT: Final = re.compile(rf"s(?:[0-9a-f]{{{2 * SALT_BYTES}}})?")


class EmittedDecision(NamedTuple):
    """A decision of an executor."""

    executor: str
    sequence: int
    check: int
    writer: int
    record: DecisionRecord


class EmittedValue(NamedTuple):
    """A constant or a skeleton that the worker has asked for, with the hash of its text."""

    check: int
    kind: str
    identity: int
    text: str


def decision_event(
    executor: str, sequence: int, check: int, writer: int, record: bytes
) -> dict[str, Any]:
    """Return a `call_decision` with what the client does not add itself."""
    content = {
        "executor": executor, "sequence": sequence, "check": hash_text(check),
        "writer": hash_text(writer), "record": record.hex(),
    }  # fmt: skip
    return {"event_type": CALL_DECISION, "content": content}


def value_event(check: int, kind: str, identity: int, text: str, salt: bytes) -> dict[str, Any]:
    """Return a `shared_value` with what the client does not add itself."""
    content = {
        "check": hash_text(check), "kind": kind, "hash": hash_text(identity), "value": text,
        "salt": f"s{salt.hex()}",
    }  # fmt: skip
    return {"event_type": SHARED_VALUE, "content": content}


def read_event(event: Mapping[str, object]) -> EmittedDecision | EmittedValue:
    """Return the decision or the value in an event.

    Raises `InvalidDecision` for any field that is not as above.
    """
    kind, content = event.get("event_type"), event.get("content")
    if not isinstance(content, Mapping):
        raise InvalidDecision("content is missing, or no JSON object")
    if kind == CALL_DECISION:
        return EmittedDecision(
            _matching(content, "executor", _EXECUTOR), _sequence(content), _hash(content, "check"),
            _hash(content, "writer"), _record(content),
        )  # fmt: skip
    if kind == SHARED_VALUE:
        value_kind = content.get("kind")
        if value_kind not in (CONSTANT, SKELETON):
            raise InvalidDecision(f"kind is {value_kind!r:.50}, not {CONSTANT!r} or {SKELETON!r}")
        identity, salt = _hash(content, "hash"), _matching(content, "salt", _SALT)
        text = verified_text(
            content.get("value"), identity, bytes.fromhex(salt[1:]),
            is_skeleton=value_kind == SKELETON,
        )  # fmt: skip
        return EmittedValue(_hash(content, "check"), value_kind, identity, text)
    raise InvalidDecision(f"event_type is {kind!r:.50}, not {CALL_DECISION!r} or {SHARED_VALUE!r}")


def hash_text(value: int) -> str:
    """Return a hash as it is in an event."""
    return f"h{value:015x}"


def _matching(content: Mapping[str, object], name: str, form: re.Pattern[str]) -> str:
    value = content.get(name)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise InvalidDecision(f"{name} is {value!r:.50}, not {form.pattern}")
    return value


def _hash(content: Mapping[str, object], name: str) -> int:
    return int(_matching(content, name, _HASH)[1:], 16)


def _sequence(content: Mapping[str, object]) -> int:
    value = content.get("sequence")
    if type(value) is not int or not 1 <= value <= LARGEST_SEQUENCE:
        raise InvalidDecision(f"sequence is {value!r:.50}, not 1 to {LARGEST_SEQUENCE}")
    return value


def _record(content: Mapping[str, object]) -> DecisionRecord:
    text = content.get("record")
    if not isinstance(text, str) or len(text) > 2 * LARGEST_RECORD:
        raise InvalidDecision("record is missing, no text, or too long")
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise InvalidDecision(f"record is not hexadecimal: {error}") from error
    return read_record(data)
