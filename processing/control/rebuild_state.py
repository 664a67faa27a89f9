"""Which rebuild a partition follows: the latest, and how far it has come with it.

While one is taken over the applied offset stays before it, so that whoever has the partition next
meets it again in the log.
"""

from __future__ import annotations

from typing import Final

import msgspec

from processing.control.latest_by_subject import LatestBySubject
from processing.control.learner_assignments import check
from processing.state.rows import CONTROL, control_body, control_row, is_deleted
from topics.control.messages import Rebuild

KEY: Final = CONTROL + b"rebuild"
"""Of the row that says what became of the latest."""
UNDERWAY: Final = CONTROL + b"rebuild underway"
"""Of the row that says which was begun last. It is of the rebuild's own offset and stays as it is,
because two processes may begin one: rows of one key and offset must never differ."""
KEYS: Final = frozenset({KEY, UNDERWAY})
BEGUN: Final = ""
DONE: Final = "done"
PASSED: Final = "passed over"


class Followup(msgspec.Struct, frozen=True, array_like=True):
    """A rebuild, where it is, and what became of it: begun, done, or why it was not followed."""

    rebuild: Rebuild
    offset: int
    result: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Followup).decode


class RebuildState(LatestBySubject[Followup]):
    """That of one partition."""

    def __init__(self, epoch: int, rules: str) -> None:
        """`rules`: the digest of the partition's."""
        super().__init__(epoch)
        self._rules = rules

    def restore(self, key: bytes, raw: bytes) -> None:
        """Take up one row of the table."""
        if key in KEYS:
            self._held[key] = _decode(control_body(raw))

    def begin(self, rebuild: Rebuild, offset: int) -> Rebuild | None:
        """Note that a rebuild is begun, and return it; None where a later one was followed.

        Raises `ValueError` where it was made by other rules, or of another log, and where its
        choice is none: who passes it over follows that.
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
        held = self._held.get(KEY)
        if held is not None and _order(held.rebuild) >= _order(rebuild):
            return None
        said = _followup(rebuild, offset, BEGUN)
        self._hold(UNDERWAY, said, _encode(said), offset)
        return rebuild

    def end(self, rebuild: Rebuild, result: str, offset: int) -> None:
        """Note why it was not followed."""
        said = _followup(rebuild, offset, result)
        self._hold(KEY, said, _encode(said), offset)

    def writes(self, offset: int) -> bool:
        """Return whether rows of an offset may be there before the applied offset is."""
        begun = self._held.get(UNDERWAY)
        return begun is not None and (begun.rebuild.epoch, begun.offset) == (self._epoch, offset)


def done_rows(rebuild: Rebuild, epoch: int, offset: int) -> dict[bytes, bytes]:
    """Return the rows that say that a rebuild at an offset was begun and is done."""
    said = {UNDERWAY: BEGUN, KEY: DONE}
    return {
        key: control_row(_encode(_followup(rebuild, offset, result)), epoch, offset)
        for key, result in said.items()
    }


def _followup(rebuild: Rebuild, offset: int, result: str) -> Followup:
    """Return the row without its partition: earlier versions refuse a field that they lack."""
    return Followup(msgspec.structs.replace(rebuild, partition=msgspec.UNSET), offset, result)


def followup_in(raw: bytes | None) -> Followup | None:
    """Return what a row of the table says of a rebuild; None where there is none."""
    return None if raw is None or is_deleted(raw) else _decode(control_body(raw))


def _order(rebuild: Rebuild) -> tuple[int, str]:
    return rebuild.at, rebuild.id
