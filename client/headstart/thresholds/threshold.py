"""What a reader answers, and how a stored value is read. Nothing here asks, keeps or decides."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

import orjson

from headstart.arguments.checks import number
from headstart.calibration import Calibration, LevelDeviation, combined, threshold
from headstart.keys import DEFAULT_PATH
from headstart.thresholds.overrides import NOTHING, Override
from headstart.thresholds.unreadable import warn_once

DEFAULT_SPECULATE: Final = 0.92
DEFAULT_SUGGEST: Final = 0.70
"""The conservative thresholds of a context that nothing is known of."""
FORMAT: Final = 1
"""Of stored values: one that says another `format` is not read."""


class Threshold(NamedTuple):
    """The answer for one context; confidences are in [0, 1], or just above 1: none will do.

    A guess at or above `speculate` is worth starting early, one at or above `suggest` worth
    showing. `level` is the context path that answered, or "default": then the tenant's learned
    default, or a constant where it has none; `version` is (epoch, offset), None for the constant.
    `speculate` is for the context's average gain and cost; `calibration`, where the learner holds
    one, for any. `override`: the manual override that was applied.
    `age_s`: seconds since Redis last confirmed this answer. `stale`: that is longer ago than the
    reader's bound, or Redis never answered, and it does not answer now.
    """

    speculate: float = DEFAULT_SPECULATE
    suggest: float = DEFAULT_SUGGEST
    level: str = "default"
    version: tuple[int, int] | None = None
    outcomes: int = 0
    calibration: Calibration | None = None
    override: Override | None = None
    stale: bool = False
    age_s: float = 0.0

    def speculate_for(self, gain: float, cost: float) -> float:
        """Return the least confidence worth starting for a gain and a cost in the same unit.

        `speculate` where no calibration is known, or an override says so. Raises `InvalidArgument`
        naming the one that is no number of at least 0.
        """
        gain, cost = number("gain", gain, 0.0, inf), number("cost", cost, 0.0, inf)
        fixed = self.override is not None and self.override.speculate is not None
        if self.calibration is None or fixed:
            return self.speculate
        try:
            found = threshold(self.calibration, gain, cost)
        except (ArithmeticError, ValueError):  # of numbers that no learner gives
            return self.speculate
        return found if 0.0 <= found <= 1.0 else self.speculate

    def overridden(self, override: Override) -> Threshold:
        """Return this answer with what an override sets."""
        speculate, suggest = override.speculate, override.suggest
        return self._replace(
            speculate=self.speculate if speculate is None else speculate,
            suggest=self.suggest if suggest is None else suggest,
            override=override,
        )

    def over(self, default: Threshold) -> Threshold:
        """Return a default where nothing else is known: with the override, as old as the older."""
        if not default.known:
            return self
        answer = default if self.override is None else default.overridden(self.override)
        return answer._replace(
            stale=self.stale or default.stale, age_s=max(self.age_s, default.age_s)
        )

    @property
    def known(self) -> bool:
        """Whether this was learned, rather than being a constant."""
        return self.version is not None

    @property
    def available(self) -> bool:
        """Whether Redis answered, now or within the reader's bound."""
        return not self.stale


class StoredThreshold(NamedTuple):
    """What one context's stored value says; its deviation packed, a third of the objects' size.

    `gone`: the context has gone, and those above it answer.
    """

    version: tuple[int, int]
    speculate: float
    suggest: float
    outcomes: int
    deviation: bytes | None
    gone: bool = False


_DEVIATION: Final = Struct(f"{len(LevelDeviation._fields)}d")
_fields: Final = itemgetter(*LevelDeviation._fields)


def read_value(stored: object) -> StoredThreshold | None:
    """Return what a decoded value says; None, with a warning, where it cannot be read.

    That is where a field is missing or is no number, a threshold is outside [0, 1], or the value is
    of another `format`. None itself is no value.
    """
    if stored is None:
        return None
    found = _read_value(stored)
    if found is None:
        warn_once("a threshold", stored, "it is passed over; a worker writes it anew as it learns")
    return found


def _read_value(stored: object) -> StoredThreshold | None:
    if not isinstance(stored, dict):
        return None
    try:
        if _whole(stored.get("format", FORMAT)) != FORMAT:
            return None
        version = _whole(stored["epoch"]), _whole(stored["offset"])
        if stored.get("deleted") is True:
            return StoredThreshold(version, DEFAULT_SPECULATE, DEFAULT_SUGGEST, 0, None, gone=True)
        speculate, suggest = _number(stored["speculate"]), _number(stored["suggest"])
        outcomes = _whole(stored["outcomes"])
    except (TypeError, KeyError, OverflowError):
        return None
    if not (0.0 <= speculate <= NOTHING and 0.0 <= suggest <= NOTHING):
        return None
    return StoredThreshold(
        version, speculate, suggest, outcomes, _deviation(stored.get("deviation"))
    )


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"a whole number, not {value!r:.64}")


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise TypeError(f"a number, not {value!r:.64}")


def decode_value(raw: bytes) -> StoredThreshold | None:
    """Return what the field of a context holds; None, with a warning, where it cannot be read."""
    try:
        return read_value(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return read_value(raw)


def _deviation(stored: object) -> bytes | None:
    if not isinstance(stored, dict):
        return None
    try:
        whole = len(stored) == len(LevelDeviation._fields)
        deviation = _fields(stored) if whole else LevelDeviation(**stored)
        return _DEVIATION.pack(*deviation) if all(map(isfinite, map(_number, deviation))) else None
    except (TypeError, KeyError, OverflowError):
        return None


def resolve(paths: Sequence[str], chain: Sequence[StoredThreshold | None]) -> Threshold:
    """Return what the finest known context of a chain says; paths and chain are fine to coarse."""
    for place, found in enumerate(chain):
        if found is not None and not found.gone:
            return Threshold(
                found.speculate,
                found.suggest,
                paths[place],
                found.version,
                found.outcomes,
                # a default is of no context, so whichever asks is one that nobody knows yet
                _calibration(chain[place:], unseen=place > 0 or paths[place] == DEFAULT_PATH),
            )
    return Threshold()


def _calibration(chain: Sequence[StoredThreshold | None], unseen: bool) -> Calibration | None:
    """Return what a chain, fine to coarse, adds up to; None where one has no part in it."""
    deviations = []
    for found in reversed(chain):
        if found is None or found.deviation is None:
            return None
        deviations.append(LevelDeviation(*_DEVIATION.unpack(found.deviation)))
    return combined(deviations, unseen=unseen)
