"""Down-weighted contexts: only one in so many of their outcomes counts in the contexts above.

Control records state which context, by how much and until when; the number of outcomes since is
kept in a row, so that the log decides which of them count. Rows expire, because users who flood are
many and may invent their names.
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


class DownweightState(msgspec.Struct, frozen=True, array_like=True):
    """The down-weight of a context: one outcome in `every` counts; 1: all count again.

    `seen`: outcomes since it began. `until`: its end by the clock, Unix ms. `kept`: how long the
    row stays, which is the latest end of all records so far, so that a revoked one does not take
    effect again.
    """

    at: int
    id: str
    every: int
    until: int
    seen: int = 0
    kept: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(DownweightState).decode
_BEGIN = CONTROL + f"weigh{SEPARATOR}".encode()


class Downweights(LatestBySubject[DownweightState]):
    """The down-weights of one partition, the newest of each context."""

    def restore(self, key: bytes, raw: bytes) -> None:
        """Restore one row of the table."""
        if key.startswith(_BEGIN):
            self._latest[key] = _decode(control_body(raw))

    def apply(self, record: Downweight, clock: int, offset: int) -> bool:
        """Apply a record unless it is over or a later one holds; return whether it was applied.

        `clock`: the partition's, Unix ms. Raises `ValueError` where the context has no parent.
        """
        if "/" not in record.path:
            raise ValueError(f"path: nothing is above {record.path:.200}")
        key = _key_of(record.tenant, record.path)
        held = self._latest.get(key)
        if held is None and (record.every == 1 or record.until <= clock):
            return False
        if held is not None and (held.at, held.id) >= (record.at, record.id):
            return False
        kept = max(record.until, 0 if held is None else held.kept)
        self._store(
            key, DownweightState(record.at, record.id, record.every, record.until, 0, kept), offset
        )
        return True

    def expire(self, clock: int, offset: int, budget: ExpiryBudget) -> None:
        """Delete those whose time is over, within the budget."""
        ends = ((max(held.kept, held.until), key) for key, held in self._latest.items())
        over = sorted(each for each in ends if each[0] <= clock)
        for key in budget.limited(key for _end, key in over):
            del self._latest[key]
            self._touch(key, deleted(self._epoch, offset))

    def depth_in(self, path: ContextPath) -> int | None:
        """Return the depth of the first down-weighted context in a path; None where none is."""
        if not self._latest:
            return None
        for depth, context in enumerate(path.contexts):
            held = self._latest.get(_key_of(context.tenant, context.path))
            if held is not None and held.every > 1:
                return depth
        return None

    def suppressed_ancestors(self, path: ContextPath, at: int, offset: int) -> Sequence[Context]:
        """Count an outcome of time `at` (Unix ms); return the contexts in which it does not count.

        The first one after the end removes the down-weight, also for earlier ones that come late.
        """
        depth = self.depth_in(path)
        if depth is None:
            return ()
        context = path.contexts[depth]
        key = _key_of(context.tenant, context.path)
        held = self._latest[key]
        if at >= held.until:
            self._store(key, msgspec.structs.replace(held, every=1), offset)
            return ()
        held = msgspec.structs.replace(held, seen=held.seen + 1)
        self._store(key, held, offset)
        return path.contexts[:depth] if held.seen % held.every else ()

    def _store(self, key: bytes, held: DownweightState, offset: int) -> None:
        self._set(key, held, _encode(held), offset)


def _key_of(tenant: str, path: str) -> bytes:
    return _BEGIN + f"{tenant}{SEPARATOR}{path}".encode()
