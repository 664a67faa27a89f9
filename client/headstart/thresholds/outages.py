"""Which servers do not respond, and until when they are not queried. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

PAUSE_S: Final = 0.25
"""Pause of queries to a server after one failed."""
FORGOTTEN_S: Final = 10.0
"""A server that was not queried for so long is no longer known as away: it may have no slots."""


class Outages:
    """The servers of one reader, by a name each: of a cluster the masters, else one.

    `clock`: seconds, that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[Hashable, float] = {}

    def pausing(self, server: Hashable) -> bool:
        """Return whether a server is not to be queried now."""
        until = self._until.get(server)
        return until is not None and self._clock() < until

    def failed(self, server: Hashable) -> bool:
        """Note that a server does not respond; return whether all others do."""
        begins = not self._until
        self._until[server] = self._clock() + PAUSE_S
        return begins

    def recovered(self, server: Hashable) -> bool:
        """Note that a server responds; return whether it was the last that did not."""
        if not self._until:
            return False
        forgotten = self._clock() - FORGOTTEN_S
        self._until = {
            name: until
            for name, until in list(self._until.items())
            if name != server and until > forgotten
        }
        return not self._until
