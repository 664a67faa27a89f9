"""Users who are weighed down: of their outcomes only some count in the contexts above their own.

Control records say who, how far and until when; how many outcomes have come since is kept in a row,
so that which of them count follows from the log. Nothing is looked up where nobody is weighed down,
and a row goes when its time is over: users who flood come and go, and may make up their names.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headstart.keys import SEPARATOR
from processing.contexts.context import Context, ContextPath
from processing.control.latest_by_subject import LatestBySubject
from processing.state.expiry_budget import ExpiryBudget
from processing.state.rows import CONTROL, control_body, deleted
from topics.control.messages import Downweight


class HeldOutcome(msgspec.Struct, frozen=True, array_like=True):
    """What holds of a context. `seen`: outcomes since it does; `every` 1: nothing any more.

    `until` it ends by the clock, `kept` until then, Unix ms: the latest end of any that came, so
    that what was taken back is not believed again.
    """

    at: int
    id: str
    every: int
    until: int
    seen: int = 0
    kept: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(HeldOutcome).decode
_BEGIN = CONTROL + f"weigh{SEPARATOR}".encode()


class Downweights(LatestBySubject[HeldOutcome]):
    """The weighings of one partition, newest of each context."""

    def restore(self, key: bytes, raw: bytes) -> None:
        """Take up one row of the table."""
        if key.startswith(_BEGIN):
            self._held[key] = _decode(control_body(raw))

    def apply(self, said: Downweight, clock: int, offset: int) -> bool:
        """Take a weighing over unless a later one holds, or its time is over; return whether it
        was new.

        `clock`: the partition's, Unix ms. Raises `ValueError` where nothing is above the context.
        """
        if "/" not in said.path:
            raise ValueError(f"path: nothing is above {said.path:.200}")
        key = _key_of(said.tenant, said.path)
        held = self._held.get(key)
        if held is None and (said.every == 1 or said.until <= clock):
            return False
        if held is not None and (held.at, held.id) >= (said.at, said.id):
            return False
        kept = max(said.until, 0 if held is None else held.kept)
        self._note(key, HeldOutcome(said.at, said.id, said.every, said.until, 0, kept), offset)
        return True

    def expire(self, clock: int, offset: int, room: ExpiryBudget) -> None:
        """Let go of those whose time is over, while there is room."""
        ends = ((max(held.kept, held.until), key) for key, held in self._held.items())
        over = sorted(each for each in ends if each[0] <= clock)
        for key in room.limited(key for _end, key in over):
            del self._held[key]
            self._touch(key, deleted(self._epoch, offset))

    def depth_in(self, chain: ContextPath) -> int | None:
        """Return how many levels of a chain are above one that is weighed down; None: none is."""
        if not self._held:
            return None
        for depth, context in enumerate(chain.contexts):
            held = self._held.get(_key_of(context.tenant, context.path))
            if held is not None and held.every > 1:
                return depth
        return None

    def suppressed_ancestors(self, chain: ContextPath, at: int, offset: int) -> Sequence[Context]:
        """Take in an outcome, `at` in Unix ms; return the contexts in which it does not count.

        The first that comes after the end lifts the weighing, also for earlier ones that come late.
        """
        depth = self.depth_in(chain)
        if depth is None:
            return ()
        context = chain.contexts[depth]
        key = _key_of(context.tenant, context.path)
        held = self._held[key]
        if at >= held.until:
            self._note(key, msgspec.structs.replace(held, every=1), offset)
            return ()
        held = msgspec.structs.replace(held, seen=held.seen + 1)
        self._note(key, held, offset)
        return chain.contexts[:depth] if held.seen % held.every else ()

    def _note(self, key: bytes, held: HeldOutcome, offset: int) -> None:
        self._hold(key, held, _encode(held), offset)


def _key_of(tenant: str, path: str) -> bytes:
    return _BEGIN + f"{tenant}{SEPARATOR}{path}".encode()
