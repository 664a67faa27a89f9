"""The answer of a reader, and how stored values are decoded. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from operator import itemgetter
from struct import Struct
from sys import intern
from typing import Final, NamedTuple

import orjson

from headstart.arguments.checks import number
from headstart.calibration import (
    Calibration,
    LevelDeviation,
    believes_calibrated,
    calibrated_threshold,
    combined,
    threshold,
)
from headstart.keys import DEFAULT_PATH
from headstart.thresholds.overrides import UNREACHABLE, Override
from headstart.thresholds.unreadable import warn_once

DEFAULT_SPECULATE: Final = 0.92
DEFAULT_SUGGEST: Final = 0.70
"""The conservative thresholds of an unknown context."""
FORMAT: Final = 1
"""Version of stored values; those with another `format` are not read."""


class Threshold(NamedTuple):
    """The thresholds of one context, as a reader returns them.

    Attributes:
        speculate: Least confidence worth starting a guess early, for the context's average gain and
            cost; in [0, 1], or just above 1 if no confidence suffices.
        suggest: Least confidence worth showing a guess; in [0, 1], or just above 1.
        level: The context path that these come from, or "default": the tenant's learned default,
            or the constants above if it has none.
        version: (log epoch, offset) of the record they were learned from; None for the constants.
        outcomes: Number of outcomes learned from; feedback is not among them.
        calibration: For `speculate_for`; None if the learner has none.
        override: The manual override that was applied, or None.
        stale: Redis does not respond, and confirmed this longer ago than `staleness_s`, or never.
        gain: Average latency in ms that a hit saves in this context; 0 if unknown.
        cost: Average cost in ms that a miss wastes in this context; 0 if unknown.
        cold_start: The workflow type has had fewer than 200 outcomes, and its learner is no
            constant: a guess whose confidence is calibrated is believed (`for_guess`).
        age_s: Seconds since Redis last confirmed this answer.
    """

    speculate: float = DEFAULT_SPECULATE
    suggest: float = DEFAULT_SUGGEST
    level: str = "default"
    version: tuple[int, int] | None = None
    outcomes: int = 0
    calibration: Calibration | None = None
    override: Override | None = None
    stale: bool = False
    gain: float = 0.0
    cost: float = 0.0
    cold_start: bool = True
    age_s: float = 0.0

    def for_guess(
        self, gain: float | None = None, cost: float | None = None, *, calibrated: bool = False
    ) -> float:
        """Return the least confidence worth starting for one guess.

        `gain`, `cost`: of this guess, in ms; None: the context's average. `calibrated`: of the
        guesses with this confidence that share is right. Such a guess needs cost / (cost + gain)
        in a cold start, and the learned threshold later. An override applies to all guesses. Raises
        `InvalidArgument` naming the argument that is not a number of at least 0.
        """
        if calibrated and self._is_believing():
            own_gain = self.gain if gain is None else number("gain", gain, 0.0, inf)
            own_cost = self.cost if cost is None else number("cost", cost, 0.0, inf)
            return calibrated_threshold(own_gain, own_cost)
        if gain is None or cost is None:
            return self.speculate
        return self.speculate_for(gain, cost)

    def _is_believing(self) -> bool:
        fixed = self.override is not None and self.override.speculate is not None
        # Without Redis the number of outcomes of an unknown context is unknown, too.
        return self.cold_start and not fixed and (self.known or not self.stale)

    def speculate_for(self, gain: float, cost: float) -> float:
        """Return the least confidence worth starting for a gain and a cost in the same unit.

        This is `speculate` if there is no calibration, or an override sets it. Raises
        `InvalidArgument` naming the argument that is not a number of at least 0.
        """
        gain, cost = number("gain", gain, 0.0, inf), number("cost", cost, 0.0, inf)
        fixed = self.override is not None and self.override.speculate is not None
        if self.calibration is None or fixed:
            return self.speculate
        try:
            found = threshold(self.calibration, gain, cost)
        except (ArithmeticError, ValueError):  # numbers that no learner writes
            return self.speculate
        return found if 0.0 <= found <= 1.0 else self.speculate

    def overridden(self, override: Override) -> Threshold:
        """Return this answer with the thresholds that an override sets."""
        speculate, suggest = override.speculate, override.suggest
        return self._replace(
            speculate=self.speculate if speculate is None else speculate,
            suggest=self.suggest if suggest is None else suggest,
            override=override,
        )

    def with_default(self, default: Threshold) -> Threshold:
        """Return a learned default in place of this unknown context, with its override and age."""
        if not default.known:
            return self
        answer = default if self.override is None else default.overridden(self.override)
        return answer._replace(
            stale=self.stale or default.stale,
            cold_start=True,  # none of the default's outcomes is of this workflow type
            age_s=max(self.age_s, default.age_s),
        )

    @property
    def known(self) -> bool:
        """Whether this was learned rather than being the constant default."""
        return self.version is not None

    @property
    def available(self) -> bool:
        """Whether Redis confirmed this within the reader's staleness bound."""
        return not self.stale


class StoredThreshold(NamedTuple):
    """The decoded value of one context; its deviation is packed, a third of the objects' size.

    `deleted`: the context was deleted; the levels above it answer.
    """

    version: tuple[int, int]
    speculate: float
    suggest: float
    outcomes: int
    deviation: bytes | None
    deleted: bool = False
    gain: float = 0.0
    cost: float = 0.0
    learner: str = ""


_DEVIATION: Final = Struct(f"{len(LevelDeviation._fields)}d")
_fields: Final = itemgetter(*LevelDeviation._fields)


def read_value(stored: object) -> StoredThreshold | None:
    """Return a threshold from decoded JSON; None, with a warning, if it cannot be used.

    It cannot if a field is missing or not a number, a threshold is outside [0, 1], or `format` is
    another one. None is not warned of.
    """
    if stored is None:
        return None
    found = _read_value(stored)
    if found is None:
        warn_once(
            "a threshold", stored, "it is ignored; a worker overwrites it with the next outcome"
        )
    return found


def _read_value(stored: object) -> StoredThreshold | None:
    if not isinstance(stored, dict):
        return None
    try:
        if _whole(stored.get("format", FORMAT)) != FORMAT:
            return None
        version = _whole(stored["epoch"]), _whole(stored["offset"])
        if stored.get("deleted") is True:
            return StoredThreshold(
                version, DEFAULT_SPECULATE, DEFAULT_SUGGEST, 0, None, deleted=True
            )
        speculate, suggest = _number(stored["speculate"]), _number(stored["suggest"])
        outcomes = _whole(stored["outcomes"])
    except (TypeError, KeyError, OverflowError):
        return None
    if not (0.0 <= speculate <= UNREACHABLE and 0.0 <= suggest <= UNREACHABLE):
        return None
    return StoredThreshold(
        version,
        speculate,
        suggest,
        outcomes,
        _deviation(stored.get("deviation")),
        gain=_average(stored.get("gain")),
        cost=_average(stored.get("cost")),
        learner=_learner(stored.get("learner")),
    )


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"a whole number, not {value!r:.64}")


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise TypeError(f"a number, not {value!r:.64}")


def _average(stored: object) -> float:
    """Return an average in ms; 0 where it is absent or cannot be used."""
    try:
        found = _number(stored)
    except (TypeError, OverflowError):
        return 0.0
    return found if 0.0 <= found < inf else 0.0


def _learner(stored: object) -> str:
    """Return the name of a policy without its parameters."""
    return intern(stored.partition(":")[0]) if isinstance(stored, str) else ""


def decode_value(raw: bytes) -> StoredThreshold | None:
    """Return a threshold from a hash field; None, with a warning, if it cannot be used."""
    try:
        return read_value(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return read_value(raw)


def _deviation(stored: object) -> bytes | None:
    if not isinstance(stored, dict):
        return None
    try:
        complete = len(stored) == len(LevelDeviation._fields)
        deviation = _fields(stored) if complete else LevelDeviation(**stored)
        return _DEVIATION.pack(*deviation) if all(map(isfinite, map(_number, deviation))) else None
    except (TypeError, KeyError, OverflowError):
        return None


def resolve(paths: Sequence[str], chain: Sequence[StoredThreshold | None]) -> Threshold:
    """Return the answer of the finest known context; paths and chain are fine to coarse."""
    for index, found in enumerate(chain):
        if found is not None and not found.deleted:
            known = [each for each in chain[index:] if each is not None and not each.deleted]
            return Threshold(
                found.speculate,
                found.suggest,
                paths[index],
                found.version,
                found.outcomes,
                # With a default the context itself is always unseen.
                _calibration(chain[index:], unseen=index > 0 or paths[index] == DEFAULT_PATH),
                gain=next((each.gain for each in known if each.gain), 0.0),
                cost=next((each.cost for each in known if each.cost), 0.0),
                cold_start=believes_calibrated(max(each.outcomes for each in known), found.learner),
            )
    return Threshold()


def _calibration(chain: Sequence[StoredThreshold | None], unseen: bool) -> Calibration | None:
    """Return the sum of a chain, fine to coarse; None if a level has no deviation."""
    deviations = []
    for found in reversed(chain):
        if found is None or found.deviation is None:
            return None
        deviations.append(LevelDeviation(*_DEVIATION.unpack(found.deviation)))
    return combined(deviations, unseen=unseen)
