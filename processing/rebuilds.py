"""Which rebuild a partition follows: the latest, and how far it has come with it."""

from __future__ import annotations

from typing import Final

import msgspec

from processing.followed import Followed
from processing.rows import CONTROL, control_body, control_row, version
from topics.controls import Rebuild

KEY: Final = CONTROL + b"rebuild"
BEGUN: Final = ""
DONE: Final = "done"


class Followup(msgspec.Struct, frozen=True, array_like=True):
    """A rebuild, and what became of it: begun, done, or the reason why it was refused."""

    rebuild: Rebuild
    result: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Followup).decode


class Rebuilds(Followed[Followup]):
    """That of one partition."""

    def __init__(self, epoch: int, rules: str) -> None:
        """`rules`: the digest of the partition's."""
        super().__init__(epoch)
        self._rules, self._offset = rules, -1

    def restore(self, key: bytes, raw: bytes) -> None:
        """Take up one row of the table."""
        if key == KEY:
            self._held[key], self._offset = _decode(control_body(raw)), version(raw)[1]

    def begin(self, rebuild: Rebuild, offset: int) -> Rebuild | None:
        """Note that a rebuild is begun, and return it; None where a later one was followed.

        Raises `ValueError` where it was made by other rules, or of another log.
        """
        if rebuild.rules != self._rules:
            raise ValueError(
                "rules: the rebuild was made by other settings than these (learner, levels, "
                "idle days, most contexts, weights or feedback weight); give both the same"
            )
        if rebuild.epoch != self._epoch:
            raise ValueError(
                f"epoch: the rebuild is of log epoch {rebuild.epoch}, not {self._epoch}"
            )
        held = self._held.get(KEY)
        if held is not None and _order(held.rebuild) >= _order(rebuild):
            return None
        self.note(rebuild, BEGUN, offset)
        return rebuild

    def note(self, rebuild: Rebuild, result: str, offset: int) -> None:
        """Note what became of it. `offset`: where it is in the log."""
        said = Followup(rebuild, result)
        self._hold(KEY, said, _encode(said), offset)
        self._offset = offset

    def begun_at(self, watermark: int) -> Rebuild | None:
        """Return the rebuild that was begun as the last thing that was done, and never finished."""
        held = self._held.get(KEY)
        unfinished = held is not None and held.result == BEGUN and self._offset == watermark >= 0
        return held.rebuild if held is not None and unfinished else None


def followup_row(rebuild: Rebuild, result: str, epoch: int, offset: int) -> bytes:
    """Return the row that says what became of a rebuild."""
    return control_row(_encode(Followup(rebuild, result)), epoch, offset)


def followup_in(raw: bytes | None) -> Followup | None:
    """Return what a row of the table says of a rebuild; None where there is none."""
    return None if raw is None else _decode(control_body(raw))


def _order(rebuild: Rebuild) -> tuple[int, str]:
    return rebuild.at, rebuild.id
