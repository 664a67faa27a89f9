"""The latest rebuild of a partition, and whether it is in progress, done or skipped.

During a rebuild the applied offset stays before it, so that the next owner of the partition reads
it again from the log.
"""

from __future__ import annotations

from typing import Final

import msgspec

from processing.control.latest_by_subject import LatestBySubject
from processing.control.learner_assignments import check
from processing.state.rows import CONTROL, control_body, control_row, is_deleted
from topics.control.messages import Rebuild

KEY: Final = CONTROL + b"rebuild"
"""Of the row with the result of the latest."""
UNDERWAY: Final = CONTROL + b"rebuild underway"
"""Of the row of the rebuild that was begun last. It has the rebuild's own offset and does not
change: two processes may begin the same one, and rows of one key and offset must never differ."""
KEYS: Final = frozenset({KEY, UNDERWAY})
BEGUN: Final = ""
DONE: Final = "done"
PASSED: Final = "passed over"


class Followup(msgspec.Struct, frozen=True, array_like=True):
    """A rebuild, its offset, and its result: begun, done, or why it was skipped."""

    rebuild: Rebuild
    offset: int
    result: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Followup).decode


class RebuildState(LatestBySubject[Followup]):
    """The rebuild of one partition."""

    def __init__(self, epoch: int, rules: str) -> None:
        """`rules`: the partition's `LearningConfig.digest`."""
        super().__init__(epoch)
        self._rules = rules

    def restore(self, key: bytes, raw: bytes) -> None:
        """Restore one row of the table."""
        if key in KEYS:
            self._latest[key] = _decode(control_body(raw))

    def begin(self, rebuild: Rebuild, offset: int) -> Rebuild | None:
        """Note that a rebuild begins, and return it; None where a later one was begun.

        Raises `ValueError` where its settings or its log differ, or its learner choice is invalid:
        that choice is applied even if the rebuild is skipped.
        """
        if rebuild.rules != self._rules:
            raise ValueError(
                "rules: the rebuild was made by other settings than these (learner, levels, "
                "idle days, most contexts, weights or feedback weight); give both the same"
            )
        if rebuild.epoch != self._epoch:
            raise ValueError(f"epoch: the rebuild is of log {rebuild.epoch}, this is {self._epoch}")
        if rebuild.choice is not None:
            check(rebuild.choice)
        held = self._latest.get(KEY)
        if held is not None and _order(held.rebuild) >= _order(rebuild):
            return None
        followup = _followup(rebuild, offset, BEGUN)
        self._set(UNDERWAY, followup, _encode(followup), offset)
        return rebuild

    def end(self, rebuild: Rebuild, result: str, offset: int) -> None:
        """Note the result of a rebuild."""
        followup = _followup(rebuild, offset, result)
        self._set(KEY, followup, _encode(followup), offset)

    def writes(self, offset: int) -> bool:
        """Return whether rows of an offset may exist before the applied offset reaches it."""
        begun = self._latest.get(UNDERWAY)
        return begun is not None and (begun.rebuild.epoch, begun.offset) == (self._epoch, offset)


def done_rows(rebuild: Rebuild, epoch: int, offset: int) -> dict[bytes, bytes]:
    """Return the rows that note that a rebuild at an offset was begun and is done."""
    results = {UNDERWAY: BEGUN, KEY: DONE}
    return {
        key: control_row(_encode(_followup(rebuild, offset, result)), epoch, offset)
        for key, result in results.items()
    }


def _followup(rebuild: Rebuild, offset: int, result: str) -> Followup:
    """Return the row, without a partition: earlier versions reject a field that they lack."""
    return Followup(msgspec.structs.replace(rebuild, partition=msgspec.UNSET), offset, result)


def followup_in(raw: bytes | None) -> Followup | None:
    """Return the state of a rebuild in a row of the table; None without one."""
    return None if raw is None or is_deleted(raw) else _decode(control_body(raw))


def _order(rebuild: Rebuild) -> tuple[int, str]:
    return rebuild.at, rebuild.id
