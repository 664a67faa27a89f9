"""A group's consumer as the `Source` of an intake."""

from __future__ import annotations

from typing import Any

from faust.types import TP


class GroupSource:
    """Faust's consumer of one app."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def earliest(self, place: TP) -> int:
        """Return the first offset that the broker still has."""
        return int((await self._app.consumer.earliest_offsets(place))[place])

    async def seek(self, place: TP, offset: int) -> None:
        """Fetch from `offset` on, and forget what was fetched beyond."""
        await self._app.consumer.seek_wait({place: offset})
