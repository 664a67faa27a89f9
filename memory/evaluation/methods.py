"""The methods that are compared, by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from memory.ranking.asked import AskedBank, FinishedRun, Retrieved
from memory.ranking.baselines import (
    ByChance,
    ByEmbedding,
    ByFirstCall,
    ByWords,
    Last,
    MostFrequent,
    MostFrequentAfterTool,
    RankingMethod,
    Typical,
)
from memory.ranking.choice import LearnedChoice
from memory.ranking.memento import MementoRule
from memory.ranking.memrl import MemRLRule
from memory.ranking.q_function import QFunction

REFERENCE: Final = "typical"
DEFAULT: Final = "memory"
REQUESTS: Final = "requests"
"""Of `memory.evaluation.requests`, not of `new_methods`: it is asked before the first call."""
LABELS: Final = {
    "random": "a case by chance",
    "last": "the newest case",
    "most_frequent": "the most frequent sequence",
    "most_frequent_after_tool": "the most frequent sequence after that tool",
    "typical": "the medoid of the sequences after that tool (the reference)",
    "bm25": "4 cases by the words of the query, BM25",
    "embedding": "4 cases by the query's embedding: similarity alone",
    "memento": "Memento's rule: 4 cases by a Q trained on retrieved cases",
    "memrl": "MemRL's rule: z(similarity) and z(utility) in equal parts",
    "first_call": "the 4 newest cases with an equal first call",
    "q": "16 cases by the Q-function, weighted by it",
    "memory": "after the first call: Q, equal first call, or typical, by learned evidence",
    "requests": "what a request gets, before the first call: the tenant's policy, or similarity",
}


class _TaughtElsewhere:
    """A Q-function that the default uses and another entry teaches."""

    def __init__(self, choice: LearnedChoice) -> None:
        self._choice = choice

    def answer(self, asked: AskedBank) -> Retrieved:
        return self._choice.function.answer(asked)

    def learn(self, asked: AskedBank, outcome: FinishedRun) -> None:
        pass


def new_methods(names: Iterable[str] | None = None) -> dict[str, RankingMethod]:
    """Return new methods by their names in `LABELS`, None for all.

    "q" is the Q-function of "memory", and must not be chosen without it.
    """
    choice = LearnedChoice(QFunction())
    found: dict[str, RankingMethod] = {
        "random": ByChance(),
        "last": Last(),
        "most_frequent": MostFrequent(),
        "most_frequent_after_tool": MostFrequentAfterTool(),
        "typical": Typical(),
        "bm25": ByWords(),
        "embedding": ByEmbedding(),
        "memento": MementoRule(),
        "memrl": MemRLRule(),
        "first_call": ByFirstCall(),
        "q": _TaughtElsewhere(choice),
        "memory": choice,
    }
    return found if names is None else {name: found[name] for name in names}
