"""Warns of values in Redis that a reader cannot use: once per value, not per read."""

from __future__ import annotations

import logging
from typing import Final

MOST_REMEMBERED: Final = 1_000
"""Remembered values are cleared at this number, so that memory stays bounded."""

_LOG = logging.getLogger("headstart.thresholds")
_warned: set[tuple[str, str]] = set()


def warn_once(what: str, value: object, consequence: str) -> None:
    """Warn that `value` of `what` cannot be used, with what applies instead."""
    shown = f"{value!r:.200}"
    if (what, shown) in _warned:
        return
    if len(_warned) >= MOST_REMEMBERED:
        _warned.clear()
    _warned.add((what, shown))
    _LOG.warning("%s in Redis cannot be used: %s; %s", what, shown, consequence)
