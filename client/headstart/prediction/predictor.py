"""The predictor of an executor: makes runs that guess calls and learn from what was called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

from headstart.prediction.call_decision import CallDecision
from headstart.prediction.decision_record import DecisionRecord
from headstart.prediction.history.run_history import RunHistory
from headstart.prediction.interface import PredictedCall, ToolCall
from headstart.prediction.model import CallModel
from headstart.prediction.private_values import PrivateValues
from headstart.prediction.record_building import TurnRecorder
from headstart.prediction.stable_hash import Hash, hash_of, hash_of_any
from headstart.prediction.state_format import read_state, state_bytes

_KEY_CHECK: Final = "\0key"

Learned = Callable[[DecisionRecord], None]
"""Takes what a turn taught."""


class CallRun:
    """One run; the methods may be called from any thread, one at a time for a run."""

    def __init__(
        self,
        history: RunHistory,
        model: CallModel,
        values: PrivateValues,
        user: int,
        lock: Lock,
        learned: Learned | None = None,
    ) -> None:
        self._history, self._model, self._values = history, model, values
        self._user, self._lock, self._learned = user, lock, learned
        self._recorder = TurnRecorder(history, model, values, user)
        self._decision: CallDecision | None = None
        self.record: DecisionRecord | None = None
        """What the last `calls()` taught."""

    def user(self, text: str) -> None:
        """Take in a message of the user."""
        self._decision = None
        self._history.user(text if isinstance(text, str) else "")

    def said(self, text: str) -> None:
        """Take in a message of the agent."""
        self._decision = None
        self._history.said(text if isinstance(text, str) else "")

    def result(self, tool: str, result: object, *, error: bool = False) -> None:
        """Take in the result of a call: JSON, as text or as objects."""
        self._decision = None
        self._history.result(self._history.hash_any(str(tool)), result, bool(error))

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        """Return at most `limit` guesses, best first."""
        with self._lock:
            return self._decide().guesses(limit)

    def calls(self, calls: Sequence[ToolCall]) -> None:
        """Learn from the calls of a turn, none for a reply.

        Of a call whose arguments are no JSON object, have more than 24 leaves, or are nested more
        than 8 deep, only the tool is learned.
        """
        with self._lock:
            decision = self._decide()
            self.record = self._recorder.record(decision, calls)
            self._model.learn(self.record, decision.computed)
            if self._learned is not None:
                self._learned(self.record)
            self._decision = None

    def _decide(self) -> CallDecision:
        if self._decision is None:
            self._decision = CallDecision(self._history, self._model, self._values, self._user)
        return self._decision


class CallPredictor:
    """Learns the calls of one workflow type, of many users, within one process.

    `hash_key` (at most 64 bytes) keys the hashes of records: give all executors of a tenant the
    same secret, and a record does not reveal its words.
    """

    def __init__(self, *, hash_key: bytes = b"") -> None:
        self.model = CallModel()
        self.values = PrivateValues()
        self._hash: Hash = hash_of(hash_key)
        self.hash_any: Hash = hash_of_any(hash_key)
        self.check: int = self._hash(_KEY_CHECK)
        """Equal for equal keys."""
        self.lock = Lock()

    def to_bytes(self, *, keep_values: bool = True) -> bytes:
        """Return the state, compressed; without values of users if `keep_values` is false."""
        with self.lock:
            return state_bytes(self.model, self.values, self.check, keep_values=keep_values)

    @classmethod
    def from_bytes(cls, data: bytes, *, hash_key: bytes = b"") -> CallPredictor:
        """Return the predictor that `to_bytes()` was called of. Raises `UnknownState`.

        The state must be made with the same `hash_key`.
        """
        predictor = cls(hash_key=hash_key)
        predictor.model, predictor.values = read_state(data, predictor.check, predictor.hash_any)
        return predictor

    def run(self, *, agent: str = "", user_id: str = "", learned: Learned | None = None) -> CallRun:
        """Begin a run. Runs without a user are of one and the same user.

        `learned` is called at each turn, while the predictor is locked.
        """
        user = self.hash_any(f"\0user\0{user_id}")
        history = RunHistory(agent, self._hash, self.hash_any)
        return CallRun(history, self.model, self.values, user, self.lock, learned)
