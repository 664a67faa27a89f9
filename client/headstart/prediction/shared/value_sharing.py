"""Gives the worker values that it asks for, if the scrubber lets them pass unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any, Final

import orjson

from headstart.prediction.bounded_tables import RecentTable
from headstart.prediction.history.json_leaves import Unusable, key_text, leaves_of
from headstart.prediction.interface import ToolCall
from headstart.prediction.private_values import PrivateValues
from headstart.prediction.shared.decision_events import CONSTANT, SKELETON, value_event
from headstart.prediction.shared.snapshot import SharedSnapshot
from headstart.prediction.shared.value_texts import (
    LARGEST_TEXT,
    Salt,
    constant_salt,
    constant_text,
    skeleton_salt,
    skeleton_text,
)
from headstart.prediction.stable_hash import Hash
from headstart.scrubbing.scrubber import Scrubber, Scrubbing

_MOST_REFUSED: Final = 4_000
_AGAIN: Final = 20  # snapshots: a value that is still wanted then is sent again


class ValueSharing:
    """What may be shared of one executor's values."""

    def __init__(self, scrubbing: Scrubbing, check: int, hash_any: Hash, salt: Salt) -> None:
        self._scrub = Scrubber(scrubbing)
        self._lock = Lock()  # a scrubber is for one thread at a time
        self._check, self._hash_any, self._salt = check, hash_any, salt
        self._refused: RecentTable[bool] = RecentTable(_MOST_REFUSED)
        self._sent: RecentTable[int] = RecentTable(_MOST_REFUSED)
        self._snapshots = 0

    def look_at(self, calls: Sequence[ToolCall]) -> None:
        """Note the values that the scrubber would change in these calls.

        A value alone would pass that is a secret by the name of its argument.
        """
        for call in calls:
            scrubbed = self._scrubbed({"tool": call.tool, "arguments": call.arguments})
            if scrubbed is not None:
                self._refuse(call, scrubbed.get("arguments"))

    def answers(self, snapshot: SharedSnapshot, values: PrivateValues) -> Iterator[dict[str, Any]]:
        """Yield an event for each wanted value that is known here and may be shared."""
        self._snapshots += 1
        for identity in snapshot.wanted_constants:
            constant = values.constants.table.get(identity)
            if constant is not None and self._is_due(identity):
                salt = constant_salt(constant[0], self._salt)
                yield from self._event(CONSTANT, identity, constant_text(constant[0]), salt)
        for identity in snapshot.wanted_skeletons:
            skeleton = values.skeletons.table.get(identity)
            if skeleton is not None and self._is_due(identity):
                salt = skeleton_salt(skeleton[0], self._salt)
                yield from self._event(SKELETON, identity, skeleton_text(skeleton[0]), salt)

    def _is_due(self, identity: int) -> bool:
        sent = self._sent.get(identity)
        if self._refused.get(identity) or (sent and self._snapshots < sent + _AGAIN):
            return False
        self._sent.set(identity, self._snapshots)
        return True

    def _event(self, kind: str, identity: int, text: str, salt: bytes) -> Iterator[dict[str, Any]]:
        event = value_event(self._check, kind, identity, text, salt)
        if len(text) <= LARGEST_TEXT // 4 and self._scrubbed(event) is None:
            yield event

    def _refuse(self, call: ToolCall, scrubbed: object) -> None:
        try:
            leaves = leaves_of(call.arguments)
        except Unusable:
            return
        try:
            kept = {path: key for path, _, key in leaves_of(scrubbed)}
        except Unusable:
            kept = {}
        for path, _, key in leaves:
            if kept.get(path) != key:
                self._refused.set(self._hash_any(key_text(key)), True)

    def _scrubbed(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """Return what the scrubber makes of an event, {} if it fails; None for no change."""
        try:
            data = orjson.dumps(event)
            with self._lock:
                scrubbed = self._scrub(data)
            return None if scrubbed is data else orjson.loads(scrubbed)
        except (TypeError, ValueError, RecursionError):
            return {}
