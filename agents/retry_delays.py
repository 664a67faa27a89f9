"""How long workers wait before they try a service again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

AT_START_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Before a worker begins: services may need minutes to start."""
AT_WORK_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""While records wait."""


def delay_s(delays: Sequence[float], attempt: int) -> float:
    """Return the seconds to wait after attempt `attempt`, counted from 0; the last one stays."""
    return delays[min(attempt, len(delays) - 1)]
