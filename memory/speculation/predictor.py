"""`MemoryEvidence`: a predictor whose confidences take into account what past runs did.

It wraps another predictor, whose guesses it neither adds to nor removes from.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from headstart.arguments.checks import InvalidArgument
from headstart.prediction.interface import (
    PastRuns,
    PredictedCall,
    Predictor,
    RunPredictor,
    ToolCall,
)
from memory.episodes.record import writer_of
from memory.speculation.past_cases import CaseSnapshot, PastCases
from memory.speculation.rules import (
    MOST_CALLS,
    CalibratedVotes,
    ConfidenceRule,
    JudgedCall,
    RunRule,
    RunShown,
)
from memory.speculation.run_cases import cases_of_run
from memory.speculation.stored_calls import stored_call

MOST_TEXTS: Final = 20
"""Messages of the user that are kept, the first ones."""

_LOG = logging.getLogger(__name__)


class MemoryEvidence:
    """Wraps a predictor: past runs are a second input of the confidence of its guesses.

        past = PastCases.of_database(dsn, "refund", tenant="acme")
        predictor = MemoryEvidence(CallPredictor(), past)
        middleware = SpeculationMiddleware("refund", tenant="acme", predictor=predictor)

    Nothing waits for the database: what `past` has read before is used. Without it, guesses keep
    the confidence of the wrapped predictor, and say so (`PredictedCall.memory.degraded`).

    Args:
        predictor: Makes the guesses.
        past: The past runs, of the workflow type and tenant of the runs.
        rule: What past runs add. Default: `CalibratedVotes()`; `SuccessBoost()` is the sources'.
        now_ms: Unix ms, for the age of past runs.

    Raises:
        InvalidArgument: The predictor has no method `run`.
    """

    def __init__(
        self,
        predictor: Predictor,
        past: PastCases,
        *,
        rule: ConfidenceRule | None = None,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        if not callable(getattr(predictor, "run", None)):
            raise InvalidArgument(f"predictor must have a method run(), not {predictor!r:.64}")
        self._predictor, self._past, self._now_ms = predictor, past, now_ms
        self._rule: ConfidenceRule = CalibratedVotes() if rule is None else rule

    def run(self, *, agent: str = "", user_id: str = "") -> EvidenceRun:
        """Begin a run of the agent `agent`, on behalf of the user `user_id`."""
        own = self._predictor.run(agent=agent, user_id=user_id)
        return EvidenceRun(own, self._past, self._rule, (user_id, agent), self._now_ms)


class EvidenceRun:
    """One run of `MemoryEvidence`. A failure of the evidence never fails the wrapped predictor."""

    def __init__(
        self,
        own: RunPredictor,
        past: PastCases,
        rule: ConfidenceRule,
        asking: tuple[str, str],
        now_ms: Callable[[], int],
    ) -> None:
        """`asking`: user and agent, "" for one that is not named."""
        self._own, self._past, self._rule, self._now_ms = own, past, rule, now_ms
        self._asking = asking
        self._shown = RunShown(writer_of(*asking), [], [])
        self._seen: CaseSnapshot | None = None
        self._off = ""
        self._of_run: RunRule | None = None
        self._judged: list[JudgedCall] = []

    def run_begun(self) -> None:
        """Begin another run of the conversation: earlier calls belong to runs of their own."""
        self._shown.calls.clear()
        self._shown.texts.clear()
        self._seen = self._of_run = None
        begun = getattr(self._own, "run_begun", None)
        if callable(begun):
            begun()

    def user(self, text: str) -> None:
        """Take in a message of the user."""
        if len(self._shown.texts) < MOST_TEXTS and isinstance(text, str):
            self._shown.texts.append(text)
        self._own.user(text)

    def said(self, text: str) -> None:
        """Take in a message of the agent."""
        self._own.said(text)

    def result(self, tool: str, result: object, *, error: bool = False) -> None:
        """Take in the result of a call."""
        self._own.result(tool, result, error=error)

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        """Return the wrapped predictor's guesses, the most confident first."""
        guesses = self._own.guess(limit)
        self._judged = []
        try:
            return self._with_evidence(guesses)
        except Exception as error:
            _LOG.warning("guesses have no evidence of past runs: %r", error)
            return guesses

    def _with_evidence(self, guesses: Sequence[PredictedCall]) -> Sequence[PredictedCall]:
        rule, degraded = self._current()
        if rule is None:
            return [
                each._replace(memory=PastRuns(each.confidence, degraded=degraded))
                for each in guesses
            ]
        judged = rule.judged(guesses, self._now_ms())
        found = [each.guess for each in judged]
        if degraded:
            found = [_marked(each, degraded) for each in found]
        self._judged = judged
        return sorted(found, key=lambda each: -each.confidence)

    def calls(self, calls: Sequence[ToolCall]) -> None:
        """Learn from what the model answered."""
        judged, self._judged = self._judged, []
        try:
            if judged:
                self._rule.learn(judged, calls)
            for call in calls[: MOST_CALLS + 1 - len(self._shown.calls)]:
                kept = stored_call(call)
                self._shown.calls.append(kept)
                if self._of_run is not None:
                    self._of_run.called(kept)
        except Exception as error:
            _LOG.warning("past runs teach nothing: %r", error)
        self._own.calls(calls)

    def _current(self) -> tuple[RunRule | None, str]:
        """Return the rule over the cases as they are now, None without any, and what is wrong."""
        snapshot = self._past.snapshot()
        if snapshot.degraded and not snapshot.cases:
            self._seen = self._of_run = None
            return None, snapshot.degraded
        seen, self._seen = self._seen, snapshot
        if seen is None or (
            snapshot is not seen
            and (snapshot.by_calls is not seen.by_calls or snapshot.profiles != seen.profiles)
        ):
            user_id, agent_id = self._asking
            index, self._off = cases_of_run(
                snapshot.by_calls, snapshot.agents, snapshot.profiles, user_id, agent_id,
                self._now_ms(),
            )  # fmt: skip
            self._of_run = None if self._off else self._rule.run(index, self._shown)
        return self._of_run, self._off or snapshot.degraded


def _marked(guess: PredictedCall, degraded: str) -> PredictedCall:
    past = guess.memory
    return guess if past is None else guess._replace(memory=past._replace(degraded=degraded))
