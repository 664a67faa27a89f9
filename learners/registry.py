"""All policies by name, and parsing of specifications with parameters."""

from __future__ import annotations

from dataclasses import fields, replace
from math import isfinite
from typing import Any, Final

from learners.conformal import Aci, ConformalPid
from learners.constant import Always, Fixed, Never
from learners.ema import Ema
from learners.gradient_pid import Gradient, Pid
from learners.hedge_grid import Grid
from learners.hedge_policies import Meta
from learners.histogram import Histogram
from learners.hops import Hops
from learners.hops_target import HopsTarget
from learners.policy import Policy
from learners.prioritised_td import Prioritised
from learners.sliding_window import Sliding
from learners.td import Td

POLICIES: Final[dict[str, Policy]] = {
    each.name: each
    for each in (
        Hops(), HopsTarget(), Meta(), Histogram(), Grid(), Aci(), ConformalPid(), Gradient(),
        Ema(), Pid(), Td(), Prioritised(), Sliding(), Fixed(), Never(), Always(),
    )
}  # fmt: skip

DEFAULT: Final = "hops"
"""Largest payoff in the worlds and on the traces of `bench learn` (docs/decisions/0003)."""


def policy(specification: str) -> Policy:
    """Return the policy of a specification: `td`, `ema:alpha=.1,target=.9`, `fixed:.8`, `default`.

    A single value without a name sets the first parameter. Raises `LookupError` for an unknown
    policy, `ValueError` for a wrong parameter.
    """
    name, _, given = specification.strip().partition(":")
    try:
        standard = POLICIES[DEFAULT if name == "default" else name]
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise LookupError(f"there is no policy {name!r}; choose one of {known}") from None
    if not given:
        return standard
    kinds = {field.name: field.type for field in fields(standard)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for part in given.split(","):
        key, sign, text = part.partition("=")
        if not sign:
            key, text = next(iter(kinds), ""), key
        values[key.strip()] = _number(standard.name, kinds, key.strip(), text.strip())
    changed: Policy = replace(standard, **values)  # type: ignore[type-var]
    _check(changed, specification)
    return changed


def _number(name: str, kinds: dict[str, Any], key: str, text: str) -> float | int:
    if key not in kinds:
        known = ", ".join(kinds) or "no parameters"
        raise ValueError(f"policy {name} has no parameter {key!r}; it has {known}")
    try:
        value = int(text) if kinds[key] in (int, "int") else float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise ValueError(f"policy {name}: {key} must be a number, not {text!r}")
    return value


def _check(changed: Policy, specification: str) -> None:
    for field in fields(changed):  # type: ignore[arg-type]
        low, high = _RANGES.get(field.name, _RANGE)
        if not low <= getattr(changed, field.name) <= high:
            raise ValueError(f"{specification}: {field.name} must be {low:g} to {high:g}")


_RANGE: Final = (0.0, 1.0)
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "window": (1, 52), "last": (1, 52), "every": (1, 1000), "least": (0, 1000),
    "size": (2, 200), "bins": (2, 200), "replays": (0, 16), "windup": (0, 100),
    "saturation": (0.1, 100), "strength": (0.1, 1000), "alarm": (1, 1000), "eta": (0, 10),
    "keep": (0.5, 0.999999), "slope_kept": (0.01, 1),
    "omega": (0, 2), "beta": (0, 2), "head_start": (0, 10),
}  # fmt: skip
"""Ranges of parameters; `_RANGE` for all others."""
