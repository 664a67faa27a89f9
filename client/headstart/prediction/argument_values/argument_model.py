"""What arguments a tool is called with: counts of skeletons, and a model of each leaf."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from headstart.prediction.argument_values.leaf_model import FLAGS, PLACES, LeafModel
from headstart.prediction.argument_values.value_ranking import ScoredValue, learn, rank
from headstart.prediction.bounded_tables import evict_oldest
from headstart.prediction.decision_record import LearnedCall, LearnedLeaf

_MOST_LEAVES, _MOST_CONTEXTS, _MOST_SKELETONS = 180, 450, 8


class ArgumentModel:
    """Learns skeletons and leaves from records; it has hashes and numbers only."""

    def __init__(self) -> None:
        self.leaves: dict[int, LeafModel] = {}
        self.skeletons: dict[int, dict[int, int]] = {}
        self.flag_weights = array("f", [0.0] * FLAGS)

    def skeleton_shares(self, contexts: Sequence[int]) -> list[tuple[float, int]]:
        """Return probability and identity of the skeletons of a tool, likeliest first."""
        known = self.skeletons.get(contexts[0])
        if not known:
            return []
        here = self.skeletons.get(contexts[1], {})
        total, total_here = sum(known.values()), sum(here.values())
        shares = [
            ((here.get(key, 0) + n / total) / (total_here + 1), key) for key, n in known.items()
        ]
        shares.sort(key=lambda each: -each[0])
        return shares

    def rank(self, leaf: LeafModel, values: Sequence[ScoredValue], after: int) -> None:
        """Set the probability of each value that is on offer for a leaf."""
        rank(leaf, values, after, self.flag_weights)

    def learn(
        self, calls: Sequence[LearnedCall], ranked: Sequence[list[ScoredValue]] | None = None
    ) -> None:
        """Learn the calls of a turn.

        All leaves are ranked as they are before the turn, but one that occurs twice. `ranked` has
        what `rank()` gives of each leaf now, and saves that time.
        """
        before, learned, i = self.flag_weights[:], set[int](), 0
        for call in calls:
            self._count_skeleton(call)
            for record in call.leaves:
                known = ranked[i] if ranked is not None and record.leaf not in learned else None
                self._learn_leaf(record, known, before)
                learned.add(record.leaf)
                i += 1
        evict_oldest(self.skeletons, _MOST_CONTEXTS)
        evict_oldest(self.leaves, _MOST_LEAVES)

    def _count_skeleton(self, call: LearnedCall) -> None:
        for context in call.contexts:
            counts = self.skeletons.pop(context, {})
            if call.skeleton in counts or len(counts) < _MOST_SKELETONS:
                counts[call.skeleton] = counts.get(call.skeleton, 0) + 1
            self.skeletons[context] = counts

    def _learn_leaf(
        self, record: LearnedLeaf, values: list[ScoredValue] | None, flags: array[float]
    ) -> None:
        leaf = self.leaves.pop(record.leaf, None) or LeafModel()
        self.leaves[record.leaf] = leaf
        if record.offered:
            if values is None:
                values = _offered(record, leaf)
                rank(leaf, values, record.after, flags)
            learn(leaf, values, record.right, record.after, self.flag_weights)
        leaf.count_constant(record.constant)
        for spec in record.found:
            leaf.add(spec, record.after % PLACES)


def _offered(record: LearnedLeaf, leaf: LeafModel) -> list[ScoredValue]:
    known = {identity: i for i, identity in enumerate(leaf.identities)}
    return [
        ScoredValue([known[t] for t in templates if t in known], constant, flags)
        for templates, constant, flags in record.offered
    ]
