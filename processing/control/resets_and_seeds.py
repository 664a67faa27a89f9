"""Which resets and seeds of operators were followed: the latest of each subject, so none twice."""

from __future__ import annotations

import msgspec

from headstart.keys import SEPARATOR
from processing.control.latest_by_subject import LatestBySubject
from processing.state.rows import CONTROL, control_body
from topics.control.messages import Reset, Seed

Order = tuple[int, str, int]
"""`at`, `id` and place of a control record: what is not higher was followed before."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Order).decode
_KINDS = tuple(CONTROL + f"{kind}{SEPARATOR}".encode() for kind in ("reset", "seed"))


class ResetsAndSeeds(LatestBySubject[Order]):
    """Those of one partition."""

    def restore(self, key: bytes, raw: bytes) -> None:
        """Take up one row of the table."""
        if key.startswith(_KINDS):
            self._held[key] = _decode(control_body(raw))

    def new(self, said: Reset | Seed) -> bool:
        """Return whether it is to be followed."""
        held = self._held.get(_key_of(said))
        return held is None or held < _order_of(said)

    def note(self, said: Reset | Seed, offset: int) -> None:
        """Note that it was followed."""
        order = _order_of(said)
        self._hold(_key_of(said), order, _encode(order), offset)


def _order_of(said: Reset | Seed) -> Order:
    return said.at, said.id, said.place if isinstance(said, Seed) else 0


def _key_of(said: Reset | Seed) -> bytes:
    if isinstance(said, Seed):
        names = ["seed", said.tenant]
    else:
        names = ["reset", said.tenant or "", said.pattern]
    return CONTROL + SEPARATOR.join(names).encode()
