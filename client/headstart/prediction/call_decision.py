"""One decision: the guesses, and the record of what it taught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headstart.prediction.argument_values.argument_guesses import GuessedArguments, guessed
from headstart.prediction.argument_values.value_offers import ValueOffers
from headstart.prediction.call_ranking import TRIES
from headstart.prediction.decision_record import Candidate, LearnedRanking
from headstart.prediction.fixed_math import ONE
from headstart.prediction.history.json_leaves import Key, key_text
from headstart.prediction.history.run_history import NOTHING, RunHistory
from headstart.prediction.history.skeletons import Skeleton
from headstart.prediction.interface import Evidence, PredictedCall
from headstart.prediction.model import CallModel, ComputedGuess
from headstart.prediction.next_tool.features import features
from headstart.prediction.next_tool.tool_model import REPLY, MixedShares
from headstart.prediction.private_values import PrivateValues
from headstart.prediction.stable_hash import Hash, combined

_TOOLS: Final = 3
_TOOL_SHARE: Final = 0.1
_OF_FIRST, _OF_OTHERS = 3, 2
_MOST_CANDIDATES: Final = 10
_FROM_MEMORY: Final = 0.01
_MOST_PROBABLE: Final = 0.97
_LEAST: Final = 1e-4


class Considered:
    """A whole call that is considered."""

    __slots__ = ("by_memory", "call", "probability", "skeleton", "tool", "tool_share", "tries",
                 "values")  # fmt: skip

    def __init__(self, call: int, tool: str, tool_share: float) -> None:
        self.call = call
        self.tool = tool
        self.tool_share = tool_share
        self.by_memory = False
        self.probability = self.tries = 0.0  # of the arguments
        self.skeleton: Skeleton | None = None
        self.values: tuple[object, ...] = ()


def call_hash(user: int, skeleton: int, keys: Sequence[Key], hash_text: Hash) -> int:
    """Return the hash of a whole call of a user."""
    call = combined(user, skeleton)
    for key in keys:
        call = combined(call, hash_text(key_text(key)))
    return call


class CallDecision:
    """What is known, guessed and computed at the beginning of one call of the agent's model."""

    def __init__(self, run: RunHistory, model: CallModel, values: PrivateValues, user: int) -> None:
        self._run, self._model, self._values, self._user = run, model, values, user
        self.features = features(run, model.tools, model.arguments)
        self.offers = ValueOffers(run, model.arguments, values, user)
        self.memory = _memory_contexts(run, user)
        mixture = model.tools.mixture(self.features)
        self._considered = self._consider(mixture) if mixture else []
        self._candidates, self._rest = self._as_candidates()
        ranking = self.ranking(())
        ranked = model.ranking.ranked(ranking, model.memory, self.memory) if ranking else None
        self.computed = ComputedGuess(model.version, mixture, ranked)

    def ranking(self, made: Sequence[int]) -> LearnedRanking | None:
        """Return the candidates, given the hashes of the calls that were made."""
        if not self._candidates:
            return None
        right = tuple(i for i, each in enumerate(self._candidates) if each.call in made)
        return LearnedRanking(self._candidates, self._rest, right)

    def guesses(self, limit: int) -> list[PredictedCall]:
        """Return the best candidates, best first."""
        ranked = self.computed.ranked
        if ranked is None:
            return []
        order = sorted(range(len(self._considered)), key=lambda i: -ranked.shares[i])
        known = [self._model.memory.followers(context) or {} for context in self.memory]
        return [self._predicted(self._considered[i], ranked.shares[i], known)
                for i in order[: max(0, limit)]]  # fmt: skip

    def _predicted(
        self, call: Considered, share: float, known: Sequence[dict[int, int]]
    ) -> PredictedCall:
        assert call.skeleton is not None
        repeats = max([counts.get(call.call, 0) for counts in known], default=0)
        evidence = Evidence(
            int(call.tries), call.tool_share, call.probability, repeats,
            "repeat" if call.by_memory else "arguments",
        )  # fmt: skip
        arguments = call.skeleton.arguments(call.values)
        confidence = self._model.ranking.correction.corrected(share)
        return PredictedCall(call.tool, arguments, confidence, evidence)

    def _consider(self, mixture: MixedShares) -> list[Considered]:
        names = self._model.tools.symbols
        shares = dict(zip([names[s] for s in mixture.symbols], mixture.shares, strict=True))
        tools = sorted((tool for tool in shares if tool != REPLY), key=lambda t: -shares[t])
        found: dict[int, Considered] = {}
        for i, tool in enumerate(tools[:_TOOLS]):
            share = shares[tool]
            if share < _TOOL_SHARE and found:
                break
            limit = _OF_OTHERS if i else _OF_FIRST
            guesses = guessed(
                self._run.hash(tool), share, limit, self._run, self._model.arguments,
                self._values, self._user, self.offers,
            )  # fmt: skip
            for each in guesses:
                self._add(found, tool, share, each)
        self._add_remembered(found, shares)
        return list(found.values())

    def _add(
        self, found: dict[int, Considered], tool: str, share: float, guess: GuessedArguments
    ) -> None:
        keys = [key for _, key in guess.values]
        call = call_hash(self._user, guess.skeleton.identity, keys, self._run.hash_any)
        if call not in found:
            added = found[call] = Considered(call, tool, share)
            added.skeleton = guess.skeleton
            added.values = tuple([value for value, _ in guess.values])
            added.probability, added.tries = guess.probability, guess.tries

    def _add_remembered(self, found: dict[int, Considered], shares: dict[str, float]) -> None:
        for context in self.memory:
            for call in self._model.memory.followers(context) or ():
                if call in found or len(found) >= _MOST_CANDIDATES:
                    continue
                remembered = self._values.remembered(call, self._user)
                if remembered is None:
                    continue
                skeleton, values = remembered
                tool = skeleton.tool
                added = found[call] = Considered(call, tool, shares.get(tool, _FROM_MEMORY))
                added.skeleton, added.values = skeleton, values
                added.probability, added.by_memory = _FROM_MEMORY, True

    def _as_candidates(self) -> tuple[tuple[Candidate, ...], int]:
        shares = [each.tool_share * each.probability for each in self._considered]
        total = 0.0
        for share in shares:
            total += share
        factor = _MOST_PROBABLE / total if total > _MOST_PROBABLE else 1.0
        first, second, third = TRIES
        made = self._run.calls_made
        candidates = tuple([
            Candidate(
                each.tool, each.call, int((share * factor + _LEAST) * ONE),
                0 if (n := each.tries) < first else 1 if n < second else 2 if n < third else 3,
                each.call in made,
            )
            for each, share in zip(self._considered, shares, strict=True)
        ])  # fmt: skip
        return candidates, int((1.0 - total * factor) * ONE)


def _memory_contexts(run: RunHistory, user: int) -> tuple[int, ...]:
    if run.last_call == NOTHING:
        return ()
    one = combined(combined(user, 41 + run.fresh), run.last_call)
    return one, combined(one, run.call_before)
