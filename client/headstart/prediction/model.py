"""The model that predicts calls: it learns from decision records, and has no user's values."""

from __future__ import annotations

from headstart.prediction.argument_values.argument_model import ArgumentModel
from headstart.prediction.argument_values.value_ranking import ScoredValue
from headstart.prediction.call_memory import CallMemory
from headstart.prediction.call_ranking import CallRanking, Ranked
from headstart.prediction.decision_record import DecisionRecord
from headstart.prediction.next_tool.tool_model import MixedShares, ToolFeatures, ToolModel


class ComputedGuess:
    """What a guess has computed already, at a version of the model."""

    __slots__ = ("leaves", "mixture", "ranked", "version")

    def __init__(self, version: int, mixture: MixedShares | None, ranked: Ranked | None) -> None:
        self.version = version
        self.mixture = mixture
        self.ranked = ranked
        self.leaves: list[list[ScoredValue]] | None = None  # ranked, as in the record


class CallModel:
    """Its state is a function of the records learned, in their order, to the bit."""

    def __init__(self) -> None:
        self.tools = ToolModel()
        self.arguments = ArgumentModel()
        self.ranking = CallRanking()
        self.memory = CallMemory()
        self.version = 0  # records learned

    def learn(self, record: DecisionRecord, computed: ComputedGuess | None = None) -> None:
        """Learn one decision; `computed` only saves time, and is ignored if the model changed."""
        features = ToolFeatures(record.contexts, record.words, record.named)
        if computed is None or computed.version != self.version:
            computed = ComputedGuess(self.version, self.tools.mixture(features), None)
        if record.ranking is not None:
            ranked = computed.ranked or self.ranking.ranked(
                record.ranking, self.memory, record.memory
            )
            self.ranking.learn(record.ranking, ranked)
        self.tools.learn(features, record.symbol, computed.mixture)
        self.memory.learn(record.memory, record.followed)
        self.arguments.learn(record.calls, computed.leaves)
        self.version += 1

    def replace(self, other: CallModel) -> None:
        """Go on from another model. The version grows, so that nothing computed before is used."""
        self.tools, self.arguments = other.tools, other.arguments
        self.ranking, self.memory = other.ranking, other.memory
        self.version = max(self.version, other.version) + 1
