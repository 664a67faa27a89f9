"""Experiments: what each arm earned. Pure; `headstart.experiments` assigns workflows to arms."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from replay.results.bootstrap import FEWEST, LEVEL, ROUNDS

_SEED: Final = 4_711


class WrongShares(ValueError):
    """The arms of an experiment and their shares are invalid; the message has the reason."""


def read_arms(given: Sequence[str]) -> dict[str, float]:
    """Return shares by arm from `hops=50`, `td=50`; they are taken in proportion.

    Raises `WrongShares`.
    """
    arms = {}
    for each in given:
        name, sign, text = each.rpartition("=")
        try:
            arms[name] = float(text)
        except ValueError:
            arms[name] = -1.0
        if not sign or not name or not 0.0 < arms[name] < 1e9:
            percent = ", without %" if text.rstrip().endswith("%") else ""
            raise WrongShares(f"arm {each!r}: give NAME=SHARE{percent}, as control=50")
    if len(arms) < 2 or len(arms) != len(given):
        raise WrongShares("an experiment has two arms or more, each with a name of its own")
    return arms


def outcome_of(
    names: Sequence[str], arms: Sequence[str], groups: Sequence[float], members: Sequence[int]
) -> dict[str, Any]:
    """Return what each arm earned per prediction, with intervals, and how others differ.

    `names`: of the arms, the control first; `arms`: of each group; `groups`: what was earned in
    each; `members`: its predictions. Intervals by bootstrap over groups within each arm.
    """
    draw = Random(_SEED)
    found: dict[str, Any] = {}
    rounds: dict[str, list[float]] = {}
    for name in names:
        own = [n for n, arm in enumerate(arms) if arm == name and members[n]]
        value, rounds[name] = _mean(own, groups, members), []
        if len(own) >= FEWEST:
            for _ in range(ROUNDS):
                drawn = draw.choices(own, k=len(own))
                rounds[name].append(_mean(drawn, groups, members) or 0.0)
        found[name] = {
            "predictions": sum(members[n] for n in own),
            "earned": sum(groups[n] for n in own),
            "per_prediction": value,
            "interval": _ends(rounds[name]),
        }
    control = names[0]
    for name in names[1:]:
        mine, other = found[name]["per_prediction"], found[control]["per_prediction"]
        pairs = zip(rounds[name], rounds[control], strict=False)
        found[name]["difference"] = None if mine is None or other is None else mine - other
        found[name]["difference_interval"] = _ends([one - two for one, two in pairs])
    return found


def _mean(own: Sequence[int], groups: Sequence[float], members: Sequence[int]) -> float | None:
    count = sum(members[n] for n in own)
    return sum(groups[n] for n in own) / count if count else None


def _ends(drawn: Sequence[float]) -> list[float] | None:
    if not drawn:
        return None
    ordered, tail = sorted(drawn), (1.0 - LEVEL) / 2.0
    last = len(ordered) - 1
    return [ordered[round(tail * last)], ordered[round((1.0 - tail) * last)]]
