"""What `Turn` and `ThreadTurn` have in common: all but starting and settling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from headstart.arguments.checks import number
from headstart.speculation.decision import SpeculationDecision
from headstart.speculation.open_turns import Closable
from headstart.speculation.turn_state import TurnState


class TurnKeeper(Protocol):
    """A speculator, as far as any turn uses it."""

    def opened(self, turn: Closable, /) -> None:
        """Close the turn if it is left open."""
        ...

    def closed(self, turn: Closable, /) -> None:
        """Forget a turn that is closed."""
        ...


Keeper = TypeVar("Keeper", bound=TurnKeeper)
Run = TypeVar("Run")


class BaseTurn(Generic[Keeper, Run]):
    """A turn with guesses. `run`: makes a guessed call; `clock`: in seconds."""

    def __init__(
        self,
        speculator: Keeper,
        context: Mapping[str, object],
        state: TurnState,
        run: Run,
        clock: Callable[[], float],
    ) -> None:
        self._speculator, self._context, self._state = speculator, context, state
        self._run, self._clock = run, clock

    @property
    def decisions(self) -> list[SpeculationDecision]:
        """The decision about each guess, after `start`."""
        return [run.choice for run in self._state.runs]

    @property
    def started(self) -> int:
        """How many guessed calls were started."""
        return sum(run.started for run in self._state.runs)

    def finished(
        self, call_id: str, duration_ms: float | None = None, *, success: bool | None = None
    ) -> None:
        """Record that a requested call that was not answered by a guess has ended.

        What a right guess saved depends on the durations of all calls of the turn. A call that is
        not reported before `close` is left out.

        Args:
            call_id: As given to `settle`; another changes nothing.
            duration_ms: Default: the time since `settle`.
            success: Whether the call succeeded, if it is known.

        Raises:
            InvalidArgument: A duration is a number of at least 0.
        """
        if duration_ms is not None:
            duration_ms = number("duration_ms", duration_ms, 0.0, unit="milliseconds")
        self._state.finished(call_id, duration_ms, success)

    def has_outcome_of(self, call_id: str) -> bool:
        """Return whether the outcome of a right guess is, or will be, logged for a requested call.

        It is the event of the call's completion; the executor logs that of the other calls.
        """
        return self._state.has_outcome_of(call_id)

    def close(self) -> None:
        """Cancel what was not used, and log what is not logged yet. A second call does nothing.

        Without `settle` the requested calls are unknown, and no outcome is logged.
        """
        self._state.close()
        self._speculator.closed(self)
