"""Explains a context's threshold: the level it comes from, its evidence and its age.

Reads Redis once, and again for the tenant's default if no level is known; resolves the threshold
as a reader does (headstart.thresholds.threshold).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from headstart.calibration import TARGET, probability
from headstart.keys import DEFAULT_PATH
from headstart.thresholds.overrides import applicable_override, read_overrides
from headstart.thresholds.threshold import Threshold, read_value, resolve
from processing.state.counters import metrics
from sinks.redis.queries import UnreadableFields, served_chain
from topics.schema.json_schema import Counts


@dataclass(frozen=True)
class Level:
    """One level of a context's path; `outcomes` is None if nothing was learned there."""

    path: str
    speculate: float | None
    outcomes: int | None
    at: int | None
    """Event time of its newest outcome, Unix ms."""
    answers: bool


@dataclass(frozen=True)
class Explanation:
    """A context's threshold and reasons; `overrides`: those in force, the most specific first."""

    threshold: Threshold
    levels: tuple[Level, ...]
    overrides: Sequence[Mapping[str, Any]]
    value: Mapping[str, Any]
    """The served value of the level that answers; empty if none does."""
    now: int
    unreadable: Sequence[UnreadableFields] = ()
    """Served values that cannot be read."""

    @property
    def metrics(self) -> dict[str, Any] | None:
        """Hits, misses, time saved and wasted at the level that answers."""
        counts = None if self.threshold.level == DEFAULT_PATH else self.value.get("counts")
        return metrics(msgspec.convert(counts, Counts)) if counts else None

    @property
    def age_s(self) -> float | None:
        """Seconds since the level that answers last learned."""
        at = self.value.get("at")
        return None if at is None else max(0.0, (self.now - at) / 1000)


async def explain(
    redis: str, tenant: str, workflow_type: str, paths: Sequence[str], tool: str | None, now: int
) -> Explanation:
    """Read Redis. `paths`: the context's, coarse to fine. Raises `RedisUnreachable`."""
    unreadable: list[UnreadableFields] = []
    values, overrides = await served_chain(redis, tenant, workflow_type, paths, unreadable)
    found = replace(explained(values, overrides, paths, tool, now), unreadable=unreadable)
    if found.threshold.known:
        return found
    default, _none = await served_chain(redis, tenant, "", [DEFAULT_PATH], unreadable)
    return with_default(found, default[0])


def explained(
    values: Sequence[Any], stored: object, paths: Sequence[str], tool: str | None, now: int
) -> Explanation:
    """Return the explanation of served values; `stored`: the overrides. Pure."""
    found = [read_value(value) for value in values]
    threshold = resolve(paths[::-1], found[::-1])
    levels = []
    for path, value, known in zip(paths, values, found, strict=True):
        if known is None or known.deleted:
            levels.append(Level(path, None, None, None, False))
            continue
        answers = path == threshold.level
        levels.append(Level(path, known.speculate, known.outcomes, value.get("at"), answers))
    served = dict(zip(paths, values, strict=True)).get(threshold.level) or {}
    overrides = read_overrides(stored)
    in_force = [
        each._asdict() for each in overrides if applicable_override([each], paths, tool, now)
    ]
    first = applicable_override(overrides, paths, tool, now, threshold.speculate)
    if first is not None:
        threshold = threshold.overridden(first)
    return Explanation(threshold, tuple(levels), in_force, served, now)


def with_default(found: Explanation, value: Any) -> Explanation:
    """Return the explanation with the tenant's default, if one is served."""
    default = resolve([DEFAULT_PATH], [read_value(value)])
    if not default.known:
        return found
    return replace(found, threshold=found.threshold.with_default(default), value=value)


def sentences(explanation: Explanation) -> Iterator[str]:
    """Yield the reasons, one line each."""
    threshold, learned = explanation.threshold, explanation.value
    if threshold.override is not None:
        named = {"speculate": threshold.override.speculate, "suggest": threshold.override.suggest}
        what = ", ".join(f"{name} {value:g}" for name, value in named.items() if value is not None)
        why = f" ({threshold.override.reason})" if threshold.override.reason else ""
        yield f"an override of {threshold.override.by or 'unknown'} sets {what}{why}"
    if not threshold.known:
        yield "nothing was learned for this context or those above it: the default answers"
        return
    if threshold.level == DEFAULT_PATH:
        yield "nothing was learned here: the tenant's default from its other workflow types answers"
        yield from _worth(threshold, learned)
        return
    own = threshold.level == explanation.levels[-1].path
    where = "the context itself" if own else "a level above, as finer ones know nothing yet"
    yield f"{threshold.level} answers ({where})"
    yield from _evidence(explanation)
    yield from _worth(threshold, learned)


def _worth(threshold: Threshold, learned: Mapping[str, Any]) -> Iterator[str]:
    gain, cost = learned.get("gain") or 0.0, learned.get("cost") or 0.0
    if gain > 0 and cost > 0:
        needed = cost / (cost + gain)
        yield (
            f"a hit saves {gain:,.0f} ms and a miss wastes {cost:,.0f} ms: a guess must be right "
            f"with probability {needed:.2f}"
        )
    elif threshold.calibration is not None:
        unknown = " or ".join(name for name, ms in (("gain", gain), ("cost", cost)) if ms <= 0)
        yield (
            f"no {unknown} is logged at this level: the average of the level above counts from "
            f"when this one began, for a workflow type that of the tenant's default; {_else(gain)}"
        )
    if threshold.calibration is not None:
        right = [
            f"{probability(threshold.calibration, p):.0%} of those with {p}"
            for p in (0.5, 0.7, 0.9)
        ]
        yield f"calibration: right are {', '.join(right)} confidence"


def _else(gain: float) -> str:
    if gain > 0:
        return "if none is known there, the cost counts as equal to the gain: a probability of 0.50"
    return f"if neither is known there, a guess must be right with probability {TARGET:.2f}"


def _evidence(explanation: Explanation) -> Iterator[str]:
    threshold, found = explanation.threshold, explanation.metrics
    parts = [f"{threshold.outcomes:,} outcomes"]
    if found is not None:
        parts.append(f"{found['hits']:,} hits and {found['misses']:,} misses of what was started")
        net = (found["saved_ms"] - found["wasted_ms"]) / 1000
        parts.append(f"net {net:+,.1f} s")
    yield f"evidence: {', '.join(parts)}"
