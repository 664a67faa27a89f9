"""Builds the decision record of a turn, and takes its calls into the run's history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headstart.prediction.argument_values.argument_guesses import skeleton_contexts
from headstart.prediction.argument_values.argument_templates import Found
from headstart.prediction.argument_values.template_search import templates_for
from headstart.prediction.argument_values.value_offers import ValueOffers
from headstart.prediction.argument_values.value_ranking import ScoredValue
from headstart.prediction.call_decision import CallDecision, call_hash
from headstart.prediction.call_memory import NO_CALL
from headstart.prediction.decision_record import (
    DecisionRecord,
    LearnedCall,
    LearnedLeaf,
)
from headstart.prediction.history.json_leaves import Key, Unusable, key_text, leaves_of
from headstart.prediction.history.run_history import RunHistory
from headstart.prediction.history.skeletons import LeafPlace, Skeleton, skeleton_identity
from headstart.prediction.interface import ToolCall
from headstart.prediction.model import CallModel
from headstart.prediction.next_tool.tool_model import REPLY
from headstart.prediction.private_values import LONGEST_CONSTANT, PrivateValues, size_of
from headstart.prediction.stable_hash import combined

_SEARCH_ALWAYS: Final = 20  # calls
_FEW_TEMPLATES: Final = 4
_MOST_CALLS: Final = 16  # of a turn, of which the arguments are learned


class TurnRecorder:
    """Records the turns of one run."""

    def __init__(self, run: RunHistory, model: CallModel, values: PrivateValues, user: int) -> None:
        self._run, self._model, self._values, self._user = run, model, values, user
        self._ranked: list[list[ScoredValue]] = []

    def record(self, decision: CallDecision, calls: Sequence[ToolCall]) -> DecisionRecord:
        """Return what a turn taught; afterwards the run's history contains its calls."""
        learned: list[LearnedCall] = []
        self._ranked = []
        made: list[int] = []
        offers = decision.offers
        if decision.computed.version != self._model.version:  # another run has learned
            offers = ValueOffers(self._run, self._model.arguments, self._values, self._user)
        for n, call in enumerate(calls):
            if n:
                offers = ValueOffers(self._run, self._model.arguments, self._values, self._user)
            hashed, record = self._call(call, offers, n < _MOST_CALLS)
            made.append(hashed)
            if record is not None:
                learned.append(record)
        decision.computed.leaves = self._ranked
        symbol = calls[0].tool if calls else REPLY
        return DecisionRecord(
            *decision.features, symbol, tuple(learned), decision.ranking(made),
            decision.memory, made[0] if made else NO_CALL,
        )  # fmt: skip

    def _call(
        self, call: ToolCall, offers: ValueOffers, is_learned: bool
    ) -> tuple[int, LearnedCall | None]:
        run = self._run
        tool = run.hash_any(call.tool)
        try:
            leaves = leaves_of(call.arguments)
        except Unusable:
            hashed = combined(self._user, tool)
            run.called(tool, hashed, None, ())
            return hashed, None
        values = [(value, key) for _, value, key in leaves]
        skeleton = self._skeleton(call, [path for path, _, _ in leaves])
        keys = [key for _, key in values]
        hashed = call_hash(self._user, skeleton.identity, keys, run.hash_any)
        record = self._learned(tool, skeleton, values, offers) if is_learned else None
        self._values.remember(hashed, skeleton, [value for value, _ in values])
        run.called(tool, hashed, skeleton, values)
        return hashed, record

    def _skeleton(self, call: ToolCall, paths: Sequence[str]) -> Skeleton:
        identity = skeleton_identity(call.tool, paths, self._run.hash_any)
        known = self._values.skeletons.table.get(identity)
        if known is None:
            new = Skeleton.of(call.tool, call.arguments, paths, self._run.hash_any)
            return self._values.skeletons.write(identity, new, self._user, new.size)
        return self._values.skeletons.write(identity, known[0], self._user, known[0].size)

    def _learned(
        self, tool: int, skeleton: Skeleton, values: Sequence[Found], offers: ValueOffers
    ) -> LearnedCall:
        chosen: dict[int, Found] = {}
        leaves: list[LearnedLeaf] = []
        for place, found in zip(skeleton.leaves, values, strict=True):
            leaves += self._leaf(place, found, chosen, offers)
            chosen[place.path_hash] = found
        return LearnedCall(skeleton_contexts(tool, self._run), skeleton.identity, tuple(leaves))

    def _leaf(
        self, place: LeafPlace, found: Found, chosen: dict[int, Found], offers: ValueOffers
    ) -> list[LearnedLeaf]:
        value, key = found
        constant = self._constant(value, key)
        records = []
        templates: tuple[tuple[int, ...], ...] | None = None
        for identity in dict.fromkeys((place.exact, place.any_index)):
            leaf = self._model.arguments.leaves.get(identity)
            on_offer = offers.offered(identity, leaf, place, chosen) if leaf else []
            identities = leaf.identities if leaf else []
            self._ranked.append(on_offer)
            offered = tuple([
                (tuple([identities[t] for t in each.templates]), each.constant, each.flags)
                for each in on_offer
            ])  # fmt: skip
            keys = [each.found[1] for each in on_offer if each.found is not None]
            right = keys.index(key) if key in keys else -1
            searched = (
                right < 0 or leaf is None or leaf.count < _SEARCH_ALWAYS
                or len(leaf.specs) < _FEW_TEMPLATES
            )  # fmt: skip
            if searched and templates is None:
                templates = tuple(templates_for(found, self._run, place, chosen))
            records.append(LearnedLeaf(
                identity, self._run.after, offered, right, constant,
                templates or () if searched else (),
            ))  # fmt: skip
        return records

    def _constant(self, value: object, key: Key) -> int:
        if isinstance(value, str) and len(value) > LONGEST_CONSTANT:
            return 0
        constant = self._run.hash_any(key_text(key))
        self._values.constants.write(constant, value, self._user, size_of(value))
        return constant
