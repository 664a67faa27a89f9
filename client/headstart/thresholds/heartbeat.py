"""A line to Redis: one life of the connection on which changes are announced."""

from __future__ import annotations


class SubscriptionHeartbeat:
    """What was last heard on one connection; a dead one never hears again.

    `heard`: everything that was announced before this moment has arrived (monotonic seconds).
    """

    __slots__ = ("heard",)

    def __init__(self, heard: float) -> None:
        self.heard = heard
