"""Guesses from a snapshot alone, to measure what local learning on top of it is worth."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.prediction.decision_record import DecisionRecord
from headstart.prediction.interface import PredictedCall, RunPredictor, ToolCall
from headstart.prediction.model import CallModel, ComputedGuess
from headstart.prediction.predictor import CallPredictor
from headstart.prediction.private_values import PrivateValues
from headstart.prediction.shared.snapshot import read_snapshot
from headstart.prediction.shared.verified_values import verified_values


class FrozenModel(CallModel):
    """A model that does not learn."""

    def learn(self, record: DecisionRecord, computed: ComputedGuess | None = None) -> None:
        """Learn nothing."""


class SnapshotReader:
    """Makes runs that know of other runs what is in a snapshot, and nothing else."""

    def __init__(self, data: bytes) -> None:
        snapshot = read_snapshot(data)
        self._predictor = CallPredictor()
        self._predictor.model = FrozenModel()
        self._predictor.model.replace(snapshot.model)
        constants, skeletons = verified_values(snapshot, self._predictor.hash_any)
        self._values = constants, skeletons, snapshot.calls

    def run(self, sharing: RunPredictor, *, agent: str, user_id: str) -> ReaderRun:
        """Begin a run; `sharing` is the same run at an executor, which learns and emits."""
        self._predictor.values = PrivateValues()
        self._predictor.values.take_shared(*self._values)
        return ReaderRun(self._predictor.run(agent=agent, user_id=user_id), sharing)


class ReaderRun:
    """A run of which the guesses come from the snapshot, while the executor learns as always."""

    def __init__(self, reading: RunPredictor, sharing: RunPredictor) -> None:
        self._reading, self._sharing = reading, sharing

    def user(self, text: str) -> None:
        """Take in a message of the user."""
        self._reading.user(text)
        self._sharing.user(text)

    def said(self, text: str) -> None:
        """Take in a message of the agent."""
        self._reading.said(text)
        self._sharing.said(text)

    def result(self, tool: str, result: object, *, error: bool = False) -> None:
        """Take in the result of a call."""
        self._reading.result(tool, result, error=error)
        self._sharing.result(tool, result, error=error)

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        """Return the guesses from the snapshot."""
        self._sharing.guess(limit)
        return self._reading.guess(limit)

    def calls(self, calls: Sequence[ToolCall]) -> None:
        """Take in the calls of a turn."""
        self._reading.calls(calls)
        self._sharing.calls(calls)
