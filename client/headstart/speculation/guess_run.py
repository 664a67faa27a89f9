"""One guess of a turn: its decision, its call if that was started, and its one outcome.

The prediction is logged with its outcome, also if it was not run, so that every policy can be
evaluated on the same log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import Final, Protocol

from headstart.emitting.call_span import GuessOutcome
from headstart.speculation.argument_equality import ArgumentKey
from headstart.speculation.calls import GuessedCall
from headstart.speculation.decision import SpeculationDecision
from headstart.speculation.guess_span import GuessSpan
from headstart.speculation.prediction_log import PredictionLog


class Execution(Protocol):
    """A guessed call under way. `begun`: when it was started, by the speculator's clock."""

    begun: float

    def ran_s(self) -> float:
        """Return the seconds that the call has run, or took."""
        ...

    def value(self) -> object:
        """Return what the call returned or raised; None if it has not ended, or was cancelled."""
        ...

    def cancel(self) -> None:
        """Stop the call if that is possible; its result is not used."""
        ...


class GuessAccount(Protocol):
    """The speculator, as far as one guess uses it."""

    def begin(self) -> bool:
        """Reserve the guess's cost; False if the budget is used up."""
        ...

    def end(self, wasted: float | None, *, failed: bool = False) -> None:
        """Release the reservation, and count `wasted` ms; None if the result was used.

        `failed`: the guess was right, but the guessed call failed.
        """
        ...


class _Stage(Enum):
    OPEN = auto()
    MATCHED = auto()
    """A requested call is the same."""
    TAKEN = auto()
    """The result is being waited for."""
    USED = auto()
    """The result was used; the outcome waits for the durations of the turn's other calls."""
    ENDED = auto()


_UNUSED: Final = (_Stage.MATCHED, _Stage.TAKEN)


class GuessRun:
    """One guess of a turn. Thread-safe; each method has an effect in its stage only.

    `choice`: the decision. `execution`: the guessed call; None if it was not started. `failed`:
    the guess was right, but its result was not used.
    """

    choice: SpeculationDecision

    def __init__(
        self, guess: GuessedCall, log: PredictionLog, account: GuessAccount, span: GuessSpan
    ) -> None:
        self.guess, self.key = guess, ArgumentKey(guess.arguments)
        self.execution: Execution | None = None
        self.failed = False
        self._log, self._account, self._span = log, account, span
        self._stage, self._lock = _Stage.OPEN, threading.Lock()

    @property
    def started(self) -> bool:
        """Whether the guessed call was started."""
        return self.execution is not None

    @property
    def waiting(self) -> bool:
        """Whether it is not decided yet if the guess was right."""
        return self._stage is _Stage.OPEN

    @property
    def used(self) -> bool:
        """Whether the result was used, and the outcome is not logged yet."""
        return self._stage is _Stage.USED

    @property
    def taken(self) -> bool:
        """Whether the result is being waited for."""
        return self._stage is _Stage.TAKEN

    def start(self, make: Callable[[], Execution]) -> bool:
        """Start the guessed call by `make` if that was decided and fits into the budget."""
        with self._lock:
            if self._stage is not _Stage.OPEN or self.choice.action != "speculate":
                return False
            if not self._account.begin():
                return False
            try:
                self.execution = self._span.start(self.choice, make)
            except BaseException:
                self._account.end(0.0)
                raise
        return True

    def predicted(self) -> None:
        """Log the prediction, unless the turn was closed meanwhile."""
        with self._lock:
            if self._stage is _Stage.OPEN:
                self._log.predicted(self.choice, self.started)

    def match(self, call_id: str) -> bool:
        """Note that a requested call is the guessed one."""
        self._span.requested(call_id)
        return self._move((_Stage.OPEN,), _Stage.MATCHED)

    def reopen(self) -> bool:
        """Undo `match`: the requested call was changed. False if the result is being used."""
        if not self._move((_Stage.MATCHED,), _Stage.OPEN):
            return False
        self._span.requested(None)
        return True

    def miss(self, tool: str | None) -> None:
        """Cancel the call of a wrong guess, and log it. `tool`: the one that was requested."""
        if self._move((_Stage.OPEN,), _Stage.ENDED):
            wasted = self._discard()
            self._log.resolved(tool, False, speculated=self.started, cost_ms=wasted)
            self._end_span(GuessOutcome(hit=False, wasted_ms=wasted))

    def take(self) -> bool:
        """Return whether the caller may wait for the result; true once."""
        return self.started and self._move((_Stage.MATCHED,), _Stage.TAKEN)

    def use(self) -> bool:
        """Return whether the caller may use the result that it waited for."""
        if not self._move((_Stage.TAKEN,), _Stage.USED):
            return False
        self._account.end(None)
        return True

    def fail(self) -> None:
        """Cancel, count and log a right guess whose call saved nothing."""
        if self.started and self._move(_UNUSED, _Stage.ENDED):
            self.failed = True
            wasted = self._discard(failed=True)
            self._log.resolved(
                self.guess.tool, False, speculated=True, cost_ms=wasted, success=False, failed=True
            )
            self._end_span(GuessOutcome(hit=False, failed=True, wasted_ms=wasted))

    def log_right(
        self, *, gain_ms: float | None, took_ms: float | None, success: bool | None
    ) -> None:
        """Log a right guess whose result was used, or that was not started."""
        if self._move((_Stage.USED,) if self.started else (_Stage.MATCHED,), _Stage.ENDED):
            self._log.resolved(
                self.guess.tool, True, speculated=self.started, gain_ms=gain_ms, took_ms=took_ms,
                success=success,
            )  # fmt: skip
            saved_ms = self.guess.gain if gain_ms is None else gain_ms
            self._end_span(GuessOutcome(hit=True, saved_ms=saved_ms))

    def abandon(self) -> None:
        """Cancel the call of a guess whose turn ends before its requested calls are known."""
        if self._move((_Stage.OPEN,), _Stage.ENDED):
            self._discard()
            self._log.ended()
            self._end_span(GuessOutcome())

    def _end_span(self, outcome: GuessOutcome) -> None:
        self._span.end(self.execution, outcome, self._log.task_id)

    def _move(self, stages: Collection[_Stage], to: _Stage) -> bool:
        with self._lock:
            if self._stage not in stages:
                return False
            self._stage = to
            return True

    def _discard(self, *, failed: bool = False) -> float | None:
        """Cancel the guessed call; return its cost in ms, None if it was not started."""
        execution, cost = self.execution, self.guess.cost
        if execution is None:
            return None
        ran_ms = execution.ran_s() * 1000.0
        execution.cancel()
        wasted = ran_ms if cost is None else cost
        self._account.end(wasted, failed=failed)
        return wasted
