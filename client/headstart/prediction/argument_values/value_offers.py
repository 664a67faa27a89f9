"""Puts together what is on offer for a leaf now: values that templates give, and constants."""

from __future__ import annotations

from typing import Final

from headstart.prediction.argument_values.argument_model import ArgumentModel
from headstart.prediction.argument_values.argument_templates import (
    AFTER_WORD,
    FIRST,
    LAST,
    RESULT,
    UNUSED,
    Chosen,
    Found,
    after_word,
    value_of,
)
from headstart.prediction.argument_values.leaf_model import LeafModel
from headstart.prediction.argument_values.value_ranking import (
    BY_AGENT,
    BY_USER,
    USED,
    USED_HERE,
    ScoredValue,
)
from headstart.prediction.history.json_leaves import Key, value_key
from headstart.prediction.history.run_history import RunHistory
from headstart.prediction.history.skeletons import LeafPlace
from headstart.prediction.private_values import PrivateValues

_CONSTANTS_MATTER: Final = 0.15
_MISSING: Final = object()
_MOST_CONSTANTS: Final = 256


class ValueOffers:
    """The offers of one decision: what does not depend on other leaves is looked up once."""

    def __init__(
        self, run: RunHistory, model: ArgumentModel, values: PrivateValues, user: int
    ) -> None:
        self._run = run
        self._model = model
        self._values = values
        self._user = user
        self._constants = run.constants
        self._independent: dict[int, list[ScoredValue]] = {}

    def ranked(self, place: LeafPlace, chosen: Chosen) -> list[ScoredValue]:
        """Return the values on offer for a leaf, likeliest first."""
        leaves = self._model.leaves
        for identity in (place.exact, place.any_index):
            leaf = leaves.get(identity)
            if leaf is not None:
                return sorted(self.offered(identity, leaf, place, chosen), key=_by_probability)
        return []

    def offered(
        self, identity: int, leaf: LeafModel, place: LeafPlace, chosen: Chosen
    ) -> list[ScoredValue]:
        """Return the values on offer by the model of a leaf, in the order of its templates."""
        known = self._independent.get(identity)
        if known is not None:
            return known
        values = self._collected(leaf, place, chosen)
        self._set_flags(values, place)
        found = list(values.values())
        if found:
            self._model.rank(leaf, found, self._run.after)
        if not leaf.dependent:
            self._independent[identity] = found
        return found

    def _collected(
        self, leaf: LeafModel, place: LeafPlace, chosen: Chosen
    ) -> dict[Key, ScoredValue]:
        values: dict[Key, ScoredValue] = {}
        run, any_index = self._run, place.any_index
        results, used = run.results, run.used_at.get(any_index)
        for i, spec in enumerate(leaf.specs):
            if spec[0] == RESULT:  # most templates are: this saves two calls of functions
                result = results.get(spec[1])
                at = result.paths.get(spec[2]) if result is not None else None
                if at is None:
                    continue
                pick = spec[3]
                if pick == FIRST or (pick == UNUSED and not used):
                    found: Found | None = at.found[0]
                elif pick == LAST:
                    found = at.found[-1]
                else:
                    found = value_of(spec, run, any_index, chosen)
            elif spec[0] == AFTER_WORD:
                found = after_word(spec, run)
            else:
                found = value_of(spec, run, any_index, chosen)
            if found is not None:
                value = values.get(found[1])
                if value is None:
                    values[found[1]] = ScoredValue([i], 0, 0, found)
                else:
                    value.templates.append(i)
        if leaf.constant_share > _CONSTANTS_MATTER:
            self._add_constants(leaf, values)
        return values

    def _add_constants(self, leaf: LeafModel, values: dict[Key, ScoredValue]) -> None:
        known = self._constants
        for constant in leaf.top:
            found = known.get(constant) or self._constant(constant)
            if found is None:
                continue
            value = values.get(found[1])
            if value is not None:
                value.constant = constant
            else:
                values[found[1]] = ScoredValue([], constant, 0, found)

    def _constant(self, constant: int) -> Found | None:
        value = self._values.constants.get(constant, self._user, _MISSING)
        key = None if value is _MISSING else value_key(value)
        if key is None:
            return None
        if len(self._constants) >= _MOST_CONSTANTS:
            self._constants.clear()
        found = self._constants[constant] = value, key
        return found

    def _set_flags(self, values: dict[Key, ScoredValue], place: LeafPlace) -> None:
        run = self._run
        by_user, by_agent, used = run.user_tokens, run.agent_tokens, run.used
        here = run.used_at.get(place.any_index, ())
        for key, value in values.items():
            if key in by_user:
                value.flags = BY_USER
            if key in by_agent:
                value.flags |= BY_AGENT
            if key in used:
                value.flags |= USED_HERE if key in here else USED


def _by_probability(value: ScoredValue) -> float:
    return -value.probability
