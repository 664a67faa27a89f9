"""Guesses the arguments of a tool: the likeliest skeletons, filled with the likeliest values."""

from __future__ import annotations

from typing import Final, NamedTuple

from headstart.prediction.argument_values.argument_model import ArgumentModel
from headstart.prediction.argument_values.argument_templates import Found
from headstart.prediction.argument_values.value_offers import ValueOffers
from headstart.prediction.argument_values.value_ranking import ScoredValue
from headstart.prediction.history.run_history import RunHistory
from headstart.prediction.history.skeletons import Skeleton
from headstart.prediction.private_values import PrivateValues
from headstart.prediction.stable_hash import combined

_SECOND_SKELETON: Final = 0.2
_SKELETONS: Final = 2
_HOPELESS, _NOT_BEST, _ALTERNATIVE = 0.01, 0.02, 0.02
_ALTERNATIVES: Final = 3


class GuessedArguments(NamedTuple):
    """Values for the leaves of a skeleton."""

    skeleton: Skeleton
    values: tuple[Found, ...]
    probability: float
    tries: float


def skeleton_contexts(tool: int, run: RunHistory) -> tuple[int, int]:
    """Return the contexts in which skeletons are counted."""
    return combined(tool, 31), combined(combined(tool, 32), combined(run.after, run.tools[-1]))


def guessed(
    tool: int,
    share: float,
    limit: int,
    run: RunHistory,
    model: ArgumentModel,
    values: PrivateValues,
    user: int,
    offers: ValueOffers,
) -> list[GuessedArguments]:
    """Return at most `limit` guesses for a tool of which the probability is `share`."""
    found: list[GuessedArguments] = []
    tried = 0
    for probability, identity in model.skeleton_shares(skeleton_contexts(tool, run)):
        skeleton = values.skeletons.get(identity, user, None)
        if skeleton is None:
            continue
        if tried == _SKELETONS or (found and probability < _SECOND_SKELETON):
            break
        tried += 1
        found += _filled(skeleton, probability, share, bool(found), offers)
    found.sort(key=lambda each: -each.probability)
    return found[:limit]


def _filled(
    skeleton: Skeleton, probability: float, share: float, is_second: bool, offers: ValueOffers
) -> list[GuessedArguments]:
    chosen: dict[int, Found] = {}
    ranked: list[list[ScoredValue]] = []
    least = _NOT_BEST if is_second else _HOPELESS
    tries = 1e9
    for place in skeleton.leaves:
        values = offers.ranked(place, chosen)
        if not values:
            return []
        best = values[0]
        probability *= best.probability
        if probability * share < least:
            return []
        assert best.found is not None
        chosen[place.path_hash] = best.found
        ranked.append(values)
        tries = min(tries, best.tries)
    top = tuple(chosen.values())
    found = [GuessedArguments(skeleton, top, probability, tries if top else 0.0)]
    for i, values in enumerate(ranked):
        for value in values[1:_ALTERNATIVES]:
            other = probability / values[0].probability * value.probability
            if other * share > _ALTERNATIVE and value.found is not None:
                replaced = (*top[:i], value.found, *top[i + 1 :])
                found.append(GuessedArguments(skeleton, replaced, other, value.tries))
    return found
