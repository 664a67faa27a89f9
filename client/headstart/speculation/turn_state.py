"""The guesses of one turn, and what they saved once all its calls have ended. No calls are made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from headstart.speculation.argument_equality import ArgumentKey
from headstart.speculation.calls import CallWithId
from headstart.speculation.guess_run import GuessRun
from headstart.speculation.turn_timing import saved_ms


class TurnSettled(RuntimeError):
    """The turn was already started or settled; each is possible once."""


class TurnState:
    """Decides which guesses were right, and logs the outcome of each once. Thread-safe.

    A miss and a failed call are logged at once. A right guess is logged when the durations of all
    calls of the turn are known, at the latest by `close`, because what it saved depends on them. A
    call whose duration is not known by then is left out.

    `parallel`: the executor makes the calls of a turn at once. `clock`: in seconds.
    """

    def __init__(
        self, runs: Sequence[GuessRun], clock: Callable[[], float], *, parallel: bool
    ) -> None:
        self.runs = runs
        self._clock, self._parallel = clock, parallel
        self._lock = threading.Lock()
        self._begun = self._answered_at = 0.0
        self._started = self._ready = self._has_answer = self._settled = self._closed = False
        self._matched: dict[str, GuessRun] = {}
        self._durations: dict[str, float | None] = {}
        """Of each requested call in ms, in their order; None until it is known."""
        self._succeeded: dict[str, bool | None] = {}

    @property
    def settled(self) -> bool:
        """Whether the requested calls are known."""
        return self._settled

    @property
    def closed(self) -> bool:
        """Whether the turn has ended."""
        return self._closed

    def start(self) -> None:
        """Note the begin of the model's call. Raises `TurnSettled` if the turn was started."""
        with self._lock:
            if self._started:
                raise TurnSettled("this turn was started before: use another turn()")
            self._started = True
            self._begun = self._clock()

    def ready(self) -> None:
        """Note that the predictions are logged."""
        self._ready = True

    def settle(self, calls: Sequence[CallWithId]) -> dict[str, GuessRun]:
        """Decide every guess; return the started ones that are right, by the requested call's id.

        Each guess is the match of at most one call, and each call of at most one guess. Raises
        `TurnSettled` if the turn was settled before, and `RuntimeError` if it was not started; a
        closed one has no matches.
        """
        with self._lock:
            if self._settled:
                raise TurnSettled("this turn is settled: its matches are returned once")
            if self._closed:
                return {}
            if not self._ready:
                raise RuntimeError("this turn was not started: await start(), or use `async with`")
            self._settled = True
            self._note_answer()
            by_id = {call.id: call for call in reversed(calls) if call.id not in self._durations}
            self._durations |= dict.fromkeys(reversed(by_id))
            matched = [call for call in calls if call.id in self._matched]
        found = _matches(self.runs, list(by_id.values())[::-1])
        for place, run in enumerate(self.runs):
            call = found.get(place)
            if call is not None and run.match(call.id):
                self._matched[call.id] = run
            else:
                run.miss(_tool_instead(calls, [*matched, *found.values()]))
        self._log_if_all_ended()
        if self._closed:  # by another thread, meanwhile
            self._end()
        return {call: run for call, run in self._matched.items() if run.started and call in by_id}

    def _note_answer(self) -> None:
        if not self._has_answer:
            self._has_answer, self._answered_at = True, self._clock()

    def request(self, call: CallWithId) -> GuessRun | None:
        """Return the started guess that is right for a call, before all calls are known.

        `settle` decides the other guesses later. A call that was requested before replaces that,
        unless a result of a guess is being used for it. None also if the turn is settled, closed or
        not started.
        """
        with self._lock:
            if self._settled or self._closed or not self._ready:
                return None
            earlier = self._matched.get(call.id)
            if earlier is not None and not earlier.reopen():
                return None
            self._matched.pop(call.id, None)
            self._note_answer()
            self._durations[call.id] = None
        waiting = [run for run in self.runs if run.waiting]
        run = next((waiting[place] for place in _matches(waiting, [call])), None)
        if run is None or not run.match(call.id):
            return None
        self._matched[call.id] = run
        if self._closed:  # by another thread, meanwhile
            self._end()
        return run if run.started else None

    def finished(
        self, call_id: str, duration_ms: float | None = None, success: bool | None = None
    ) -> None:
        """Note that a requested call has ended. `duration_ms`: default the time since `settle`.

        Calls that are unknown, or answered by a guess, and further reports change nothing.
        """
        with self._lock:
            run = self._matched.get(call_id)
            if self._closed or self._durations.get(call_id, 0.0) is not None:
                return
            if run is not None and run.taken:
                return  # its result is being waited for, and its own duration counts
            since = (self._clock() - self._answered_at) * 1000.0
            self._durations[call_id] = since if duration_ms is None else duration_ms
            self._succeeded[call_id] = success
        if run is not None:
            run.fail()  # where its result was not asked for
        self._log_if_all_ended()

    def use(self, call_id: str, run: GuessRun) -> bool:
        """Return whether the result of a match may be used, and note its duration."""
        if run.execution is None or self._matched.get(call_id) is not run:
            return False
        with self._lock:
            self._durations[call_id] = run.execution.ran_s() * 1000.0
            self._succeeded[call_id] = True
        if not run.use():
            with self._lock:
                self._durations[call_id] = self._succeeded[call_id] = None
            return False
        self._log_if_all_ended()
        return True

    def has_outcome_of(self, call_id: str) -> bool:
        """Return whether the outcome of a guess is the event of a requested call's completion."""
        run = self._matched.get(call_id)
        return run is not None and not run.failed and run.choice.mode != "off"

    def close(self) -> None:
        """End the turn: whatever is open is cancelled, and what is not logged yet is logged.

        Without `settle` the requested calls are unknown, so no outcome is logged.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._end()

    def _end(self) -> None:
        for run in self.runs:
            run.abandon()
            run.fail()
        self._log_right()

    def _log_if_all_ended(self) -> None:
        with self._lock:
            ended = self._settled and all(ms is not None for ms in self._durations.values())
        if ended:
            self._log_right()

    def _log_right(self) -> None:
        with self._lock:
            known = {call: ms for call, ms in self._durations.items() if ms is not None}
            matched = dict(self._matched)
        starts = {
            call: (self._answered_at - run.execution.begun) * 1000.0
            for call, run in matched.items()
            if run.execution is not None and run.used
        }
        saved = saved_ms(known, starts, parallel=self._parallel)
        for call, run in matched.items():
            gain = saved.get(call)
            if not run.started and call in known:  # what it would have saved
                thinking_ms = (self._answered_at - self._begun) * 1000.0
                gain = saved_ms(known, {call: thinking_ms}, parallel=self._parallel)[call]
            run.log_right(gain_ms=gain, took_ms=known.get(call), success=self._succeeded.get(call))


def _matches(runs: Sequence[GuessRun], calls: Sequence[CallWithId]) -> dict[int, CallWithId]:
    """Return the requested call of each right guess, by the guess's place."""
    guessed = {run.guess.tool for run in runs}
    open_ = [(call, ArgumentKey(call.arguments)) for call in calls if call.tool in guessed]
    found: dict[int, CallWithId] = {}
    for place, run in enumerate(runs):
        for index, (call, key) in enumerate(open_):
            if call.tool == run.guess.tool and run.key.is_same_as(key):
                found[place] = call
                del open_[index]
                break
    return found


def _tool_instead(calls: Sequence[CallWithId], matched: Collection[CallWithId]) -> str | None:
    """Return the tool that was requested instead of a wrong guess: one that no guess matched."""
    taken = {id(call) for call in matched}
    rest = [call.tool for call in calls if id(call) not in taken]
    return rest[0] if rest else calls[0].tool if calls else None
