"""What both speculators do without their reader: decisions, budget, counts and open turns."""

from __future__ import annotations

import inspect
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Unpack

from headstart.arguments import environment
from headstart.arguments.checks import (
    InvalidArgument,
    function,
    identifier,
    mapping,
    number,
    refuse_unknown,
)
from headstart.events.constructors import in_scope
from headstart.prediction.interface import PredictedCall
from headstart.speculation.calls import GuessedCall, evidence_of, guessed_call, stakes
from headstart.speculation.cost_budget import CostBudget, ExpectedWaste
from headstart.speculation.decision import Guess, SpeculationDecision, decide
from headstart.speculation.guess_run import GuessRun
from headstart.speculation.guess_span import GuessSpan, spans_of
from headstart.speculation.open_turns import OPEN_S, Closable, OpenTurns
from headstart.speculation.prediction_log import EventSink, PredictionLog
from headstart.speculation.speculator_options import LARGEST_MS, WASTED_PER_MINUTE, Options
from headstart.speculation.tool_allowlist import SAFE, ToolAllowlist
from headstart.speculation.turn_state import TurnState
from headstart.thresholds.base_reader import BaseReader
from headstart.thresholds.modes import Mode
from headstart.thresholds.reader import Context
from headstart.thresholds.threshold import Threshold

Guesses = Sequence[PredictedCall | GuessedCall]
"""Guesses of one turn, best first."""

_COUNTED: Final = (
    "speculate", "suggest", "ask", "explored", "started", "discarded", "failed", "unlogged",
    "reaped", "unpredicted",
)  # fmt: skip


class BaseSpeculator:
    """Everything but the calls of the reader and the guessed calls."""

    def __init__(self, emitter: EventSink | None, **options: Unpack[Options]) -> None:
        refuse_unknown(type(self).__name__, options, Options.__annotations__)
        if emitter is not None and not callable(getattr(emitter, "emit", None)):
            raise InvalidArgument(f"emitter must be an Emitter, not {emitter!r:.64}")
        self._emitter = emitter
        share, limit = options.get("exploration", 0.0), options.get("wasted_per_minute")
        self._spans = spans_of(options.get("spans", True))
        self._logs_arguments = environment.log_arguments(options.get("log_arguments"))
        self._exploration = number("exploration", share, 0.0, 1.0)
        limit = WASTED_PER_MINUTE if limit is None else limit
        self._budget = CostBudget(number("wasted_per_minute", limit, 0.0, float("inf"), unit="ms"))
        self._wasted = ExpectedWaste()
        self._allowlist = ToolAllowlist(
            allowed=options.get("allowed", ()),
            dangerous=options.get("dangerous", ()),
            annotations=options.get("annotations", {}),
        )
        self._clock: Callable[[], float] = options.get("clock", time.monotonic)
        function("clock", self._clock)
        self._random = random.Random(_seed(options))
        open_s = number("open_s", options.get("open_s", OPEN_S), 0.0, above=True, unit="seconds")
        self._open = OpenTurns(open_s)
        self._is_closed = False
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def emitter(self) -> EventSink | None:
        """Where predictions and outcomes are logged."""
        return self._emitter

    @property
    def logs_arguments(self) -> bool:
        """Whether the arguments of calls are logged."""
        return self._logs_arguments

    def declare(self, annotations: Mapping[str, object]) -> None:
        """Add annotations of tools that became known later; see `Options`.

        They add to what is declared: of two that disagree the unsafe one applies. Raises
        `InvalidArgument`.
        """
        self._allowlist.declare(annotations)

    def may_start(self, tool: str) -> bool:
        """Return whether a tool is safe to run on a guess, by what is declared."""
        return self._allowlist.refusal_reason(tool) == SAFE

    def missed(self, cost: float) -> None:
        """Count the cost of a wrong guess that you started yourself; turns do it for theirs.

        `cost`: wasted, in ms. Raises `InvalidArgument`.
        """
        number("cost", cost, 0.0, LARGEST_MS, unit="ms")
        with self._lock:
            self._budget.settle(0.0, cost, self._clock())

    def stats(self) -> dict[str, float]:
        """Return counts since construction.

        Decisions: `speculate`, `suggest`, `ask`, and `explored` (part of `speculate`). Guessed
        calls: `started`, `discarded` (part of it), `failed` (part of that: right, but the guessed
        call failed). `unlogged`: events that could not be logged. `reaped`: turns that were left
        open. `unpredicted`: guesses that a predictor failed to make, or made too late. Now: `open`
        turns, and the ms `wasted` within the last minute.
        """
        with self._lock:
            counts: dict[str, float] = {name: self._counts[name] for name in _COUNTED}
            wasted = self._budget.wasted(self._clock())
        return {**counts, "open": len(self._open), "wasted": wasted}

    def count(self, name: str) -> None:
        """Add one to a count of `stats`."""
        with self._lock:
            self._counts[name] += 1

    def _decide(self, guess: Guess, mode: Mode, threshold: Threshold) -> SpeculationDecision:
        with self._lock:
            explore = self._random.random() < self._exploration
            fits = self._budget.fits(self._expected_cost(guess), self._clock())
            choice = decide(
                guess,
                threshold,
                mode,
                refusal_reason=self._allowlist.refusal_reason(guess.tool),
                fits=fits,
                explore=explore,
            )
            self._counts[choice.action] += 1
            self._counts["explored"] += choice.explored
        return choice

    def _state(
        self, context: Context, guesses: Guesses, *, limit: int, parallel: bool
    ) -> TurnState:
        """Return the state of a turn with the best guesses. Raises `InvalidArgument`."""
        number("limit", limit, 0, whole=True)
        runs: list[GuessRun] = []
        for given in guesses:
            if limit <= 0:
                break
            guess = guessed_call(given)
            # Guesses that no threshold could start are logged apart, and do not count.
            limit -= self._allowlist.refusal_reason(guess.tool) == SAFE
            log = PredictionLog(
                self._emitter, context, stakes(guess), failed=partial(self.count, "unlogged"),
                evidence=evidence_of(guess), memory=guess.memory,
                arguments=guess.arguments if self.logs_arguments else None,
            )  # fmt: skip
            span = GuessSpan(self._spans, guess, context)
            runs.append(GuessRun(guess, log, _Account(self, stakes(guess)), span))
        return TurnState(runs, self._clock, parallel=parallel)

    def _expected_cost(self, guess: Guess) -> float:
        return self._wasted.of(guess.tool) if guess.cost is None else guess.cost

    def reserve(self, guess: Guess) -> float | None:
        """Return the cost in ms that is reserved for a guess that starts; None if it is too much.

        A guess without a cost of its own is expected to waste what those of its tool did before.
        """
        with self._lock:
            cost = self._expected_cost(guess)
            begun = self._budget.reserve(cost, self._clock())
            self._counts["started"] += begun
        return cost if begun else None

    def release(self, guess: Guess, reserved: float, wasted: float | None, failed: bool) -> None:
        """Release what `reserve` returned, and count what was wasted; None if the call was used."""
        with self._lock:
            self._counts["discarded"] += wasted is not None
            self._counts["failed"] += failed
            if wasted is not None and guess.cost is None:
                self._wasted.add(guess.tool, wasted)
            self._budget.settle(reserved, wasted or 0.0, self._clock())

    def opened(self, turn: Closable) -> None:
        """Keep a turn until it is closed, and close those that were left open."""
        self._open.add(turn, self._clock())
        if self._is_closed:
            turn.close()
        self.reap()

    def closed(self, turn: Closable) -> None:
        """Forget a turn that is closed."""
        self._open.remove(turn)

    def reap(self) -> None:
        """Close the turns that were left open for too long, or that are too many."""
        for turn in self._open.expired(self._clock()):
            turn.close()
            self.count("reaped")

    def _close_all(self) -> list[Any]:
        """Close every open turn, and return them. Those opened later are closed at once."""
        self._is_closed = True
        turns = self._open.take_all()
        for turn in turns:
            turn.close()
        return turns


class _Account:
    """Implements `headstart.speculation.guess_run.GuessAccount` for one guess."""

    def __init__(self, speculator: BaseSpeculator, guess: Guess) -> None:
        self._speculator, self._guess = speculator, guess
        self._reserved = 0.0

    def begin(self) -> bool:
        reserved = self._speculator.reserve(self._guess)
        self._reserved = reserved or 0.0
        return reserved is not None

    def end(self, wasted: float | None, *, failed: bool = False) -> None:
        self._speculator.release(self._guess, self._reserved, wasted, failed)


def _seed(options: Options) -> int | None:
    seed = options.get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int | None):
        raise InvalidArgument(f"seed must be a whole number, not {seed!r:.64}")
    return seed


def require_reader(thresholds: object, *, asynchronous: bool) -> None:
    """Raise `InvalidArgument` for a reader of the wrong kind."""
    get = getattr(thresholds, "get", None)
    wanted = "AsyncThresholds" if asynchronous else "Thresholds"
    fits = callable(get) and callable(getattr(thresholds, "mode", None))
    if not fits or inspect.iscoroutinefunction(get) is not asynchronous:
        raise InvalidArgument(
            f"thresholds must be of class {wanted}, not {type(thresholds).__name__}"
        )


def complete_context(context: object, thresholds: object) -> Context:
    """Return a context completed from the current scope. Raises `InvalidArgument`."""
    given = mapping("context", context)
    complete = in_scope(given)
    identifier("workflow_type", complete.get("workflow_type"))
    if "tenant" in complete:
        identifier("tenant", complete["tenant"])
    if isinstance(thresholds, BaseReader):
        thresholds.check(given, complete)
    return complete


def tenant_and_agent(context: Context) -> tuple[str, str | None]:
    """Return the tenant and agent of a context, which determine its mode."""
    tenant, agent = context.get("tenant"), context.get("agent_id")
    return "default" if tenant is None else str(tenant), None if agent is None else str(agent)
