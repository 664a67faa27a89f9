"""Resets, purges and seeds that were applied: the latest of each subject: none applies twice."""

from __future__ import annotations

import msgspec

from headstart.keys import SEPARATOR
from processing.control.latest_by_subject import LatestBySubject
from processing.state.rows import CONTROL, control_body
from topics.control.messages import Purge, Reset, Seed
from topics.control.purges import subject_name

Order = tuple[int, str, int]
"""`at`, `id` and place of a control record: one that is not higher was applied before."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Order).decode
_KINDS = tuple(CONTROL + f"{kind}{SEPARATOR}".encode() for kind in ("reset", "seed", "purge"))


class ResetsAndSeeds(LatestBySubject[Order]):
    """Those of one partition."""

    def restore(self, key: bytes, raw: bytes) -> None:
        """Restore one row of the table."""
        if key.startswith(_KINDS):
            self._latest[key] = _decode(control_body(raw))

    def new(self, record: Reset | Seed | Purge) -> bool:
        """Return whether a record is to be applied."""
        held = self._latest.get(_key_of(record))
        return held is None or held < _order_of(record)

    def note(self, record: Reset | Seed | Purge, offset: int) -> None:
        """Note that a record was applied."""
        order = _order_of(record)
        self._set(_key_of(record), order, _encode(order), offset)


def _order_of(record: Reset | Seed | Purge) -> Order:
    return record.at, record.id, record.place if isinstance(record, Seed) else 0


def _key_of(record: Reset | Seed | Purge) -> bytes:
    if isinstance(record, Seed):
        names = ["seed", record.tenant]
    elif isinstance(record, Purge):
        names = ["purge", record.tenant, *subject_name(record)]
    else:
        names = ["reset", record.tenant or "", record.pattern]
    return CONTROL + SEPARATOR.join(names).encode()
