"""The predictor of an executor that learns together with others.

It emits what its runs teach, and loads snapshots of what all executors taught. On top of a snapshot
it learns its own decisions that the snapshot does not cover yet. It does no input or output itself.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Final

from headstart.prediction.decision_record import DecisionRecord
from headstart.prediction.interface import PredictedCall, ToolCall
from headstart.prediction.model import CallModel
from headstart.prediction.predictor import CallPredictor, CallRun
from headstart.prediction.private_values import PrivateValues
from headstart.prediction.shared.own_decisions import Emit, OwnDecisions, learn_again
from headstart.prediction.shared.snapshot import SharedSnapshot, read_snapshot
from headstart.prediction.shared.value_sharing import ValueSharing
from headstart.prediction.shared.verified_values import verified_values
from headstart.prediction.stable_hash import BITS, salt_of
from headstart.prediction.state_format import UnknownState
from headstart.scrubbing.scrubber import Scrubbing

_OTHER_KEY: Final = (
    "this snapshot was made with another hash_key, or for another tenant or workflow type; give "
    "all executors of the tenant one HEADSTART_HASH_KEY"
)
_log: Final = logging.getLogger(__name__)
Source = Callable[[], bytes | None]
"""Returns the newest snapshot, None if there is none or nothing has changed."""


class SharedCallPredictor:
    """Learns the calls of one workflow type with all executors of a tenant.

    `emit` takes each event for the topic of decisions; what it raises is reported, and that event
    is lost. `source` is what `refresh()` reads. `report` takes a message about a snapshot that
    cannot be used, once, or an event that was not emitted. Methods may be called from any thread.
    """

    def __init__(
        self,
        emit: Emit,
        source: Source | None = None,
        *,
        hash_key: bytes = b"",
        scrubbing: Scrubbing | None = None,
        report: Callable[[str], None] = _log.warning,
    ) -> None:
        self._predictor = CallPredictor(hash_key=hash_key)
        self._emit, self._source, self._report = emit, source, report
        check, hash_any = self._predictor.check, self._predictor.hash_any
        self._own = OwnDecisions(check)
        salt = partial(salt_of, key=hash_key)
        self._sharing = ValueSharing(scrubbing or Scrubbing(), check, hash_any, salt)
        self._loading = Lock()
        self._reported = ""
        self.events = 0
        """Events that the snapshot in use was made of."""

    @property
    def executor(self) -> str:
        """The random id of this process in its events."""
        return self._own.executor

    def run(self, *, agent: str = "", user_id: str = "") -> SharedCallRun:
        """Begin a run. A run without a user counts as a writer of its own of what is shared."""
        writer = secrets.randbits(BITS)
        if user_id:
            writer = self._predictor.hash_any(f"\0writer\0{user_id}")

        def learned(record: DecisionRecord) -> None:
            self._own.add(record, writer)

        run = self._predictor.run(agent=agent, user_id=user_id, learned=learned)
        return SharedCallRun(run, self._sharing.look_at, self._emit_decisions)

    def refresh(self) -> bool:
        """Load what the source returns; return whether a snapshot was loaded."""
        data = self._source() if self._source else None
        return data is not None and self.load(data)

    def load(self, data: bytes) -> bool:
        """Go on from a snapshot, in the caller's thread; guesses wait for its last step only.

        Returns False, and goes on with what is there, if the snapshot is damaged, of a newer
        version, or made with another `hash_key`: reported once.
        """
        with self._loading:
            try:
                snapshot = read_snapshot(data)
                if snapshot.check not in (None, self._predictor.check):
                    raise UnknownState(_OTHER_KEY)
            except UnknownState as error:
                self._say(f"cannot use the snapshot of what is learned, going on without: {error}")
                return False
            self._reported = ""
            self._take(snapshot)
        return True

    def reset(self) -> None:
        """Forget everything: what was loaded, learned, and is kept of users."""
        with self._loading, self._predictor.lock:
            self._predictor.model.replace(CallModel())
            self._predictor.values.replace(PrivateValues())
            self._own.start_new_executor()
            self.events = 0

    def _take(self, snapshot: SharedSnapshot) -> None:
        predictor, own, model = self._predictor, self._own, snapshot.model
        shared = verified_values(snapshot, predictor.hash_any)
        with predictor.lock:
            is_own = own.forget_covered(snapshot.covered, covers_all=snapshot.covers_all)
            decisions, reached = list(own.kept), own.sequence
        if not is_own:
            self._report("another process has sent decisions under the id of this one; its own go "
                         "on under another id, and some may not be learned")  # fmt: skip
        learn_again(model, decisions)
        with predictor.lock:
            learn_again(model, [each for each in own.kept if each.sequence > reached])
            predictor.model.replace(model)
            predictor.values.take_shared(*shared, snapshot.calls)
            answers = list(self._sharing.answers(snapshot, predictor.values))
            self.events = snapshot.events
        for event in answers:
            self._emit_one(event)

    def _emit_decisions(self) -> None:
        try:
            self._own.emit_all(self._emit)
        except Exception as error:
            self._say(f"what was learned is not emitted: {error!r}")

    def _emit_one(self, event: dict[str, object]) -> None:
        try:
            self._emit(event)
        except Exception as error:
            self._say(f"a shared value is not emitted: {error!r}")

    def _say(self, message: str) -> None:
        if message != self._reported:
            self._reported = message
            self._report(message)


class SharedCallRun:
    """One run; the methods may be called from any thread, one at a time for a run."""

    def __init__(
        self, run: CallRun, look_at: Callable[[Sequence[ToolCall]], None], emit: Callable[[], None]
    ) -> None:
        self._run, self._look_at, self._emit = run, look_at, emit
        self.user, self.said, self.result = run.user, run.said, run.result

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        """Return at most `limit` guesses, best first."""
        return self._run.guess(limit)

    def calls(self, calls: Sequence[ToolCall]) -> None:
        """Learn from the calls of a turn, none for a reply, and emit what they taught."""
        self._look_at(calls)  # before a value can be asked for
        self._run.calls(calls)
        self._emit()
