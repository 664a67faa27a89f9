"""The speculators that executors import: decide whether to start a guessed call early.

They use a reader for the threshold and the mode, the tool allowlist, and the cost budget. One is
for threads; the one for asyncio also runs guessed calls.
"""

from __future__ import annotations

import inspect
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Final, NamedTuple, TypedDict, TypeVar, Unpack

from headstart.arguments.checks import (
    InvalidArgument,
    function,
    identifier,
    mapping,
    number,
    refuse_unknown,
)
from headstart.events.constructors import in_scope
from headstart.speculation.attempt import Attempt, AttemptResolved, Resolution
from headstart.speculation.cost_budget import CostBudget
from headstart.speculation.decision import Action, Guess, SpeculationDecision, check_guess, decide
from headstart.speculation.guessed_call import check_call
from headstart.speculation.prediction_log import EventSink, PredictionLog
from headstart.speculation.tool_allowlist import ToolAllowlist
from headstart.thresholds.base_reader import BaseReader
from headstart.thresholds.modes import Mode
from headstart.thresholds.reader import AsyncThresholds, Context, Thresholds
from headstart.thresholds.threshold import Threshold

__all__ = [
    "Action",
    "AsyncSpeculator",
    "Attempt",
    "AttemptResolved",
    "InvalidArgument",
    "Options",
    "Resolution",
    "SpeculationDecision",
    "Speculator",
]

WASTED_PER_MINUTE: Final = 60_000.0
LARGEST_MS: Final = 1e15
"""Largest cost accepted, in ms: the service learns from no larger one."""

_COUNTED: Final = (
    "speculate", "suggest", "ask", "explored", "started", "discarded", "failed", "unlogged",
)  # fmt: skip

T = TypeVar("T")


class Options(TypedDict, total=False):
    """Options of a speculator. A tool is run on a guess only if it is declared safe."""

    allowed: Collection[str]
    """Tools that are safe to run early and to discard."""
    dangerous: Collection[str]
    """Tools that are never run on a guess, whatever else is declared."""
    annotations: Mapping[str, object]
    """By tool name, MCP annotations, a framework's metadata or its tool: mappings or objects.
    A read-only tool is safe; a destructive one is never run on a guess."""
    wasted_per_minute: float
    """Cost of wrong guesses in ms, over all contexts, after which none is started; default 60,000.
    0 starts none; infinity is no limit."""
    exploration: float
    """Share of declined guesses of safe tools that are started anyway; default 0."""
    seed: int
    """Seed of the random draws for exploration."""
    clock: Callable[[], float]
    """Monotonic clock in seconds."""


class _BaseSpeculator:
    """Everything but the calls of the reader."""

    def __init__(self, **options: Unpack[Options]) -> None:
        refuse_unknown(type(self).__name__, options, Options.__annotations__)
        share, limit = options.get("exploration", 0.0), options.get("wasted_per_minute")
        self._exploration = number("exploration", share, 0.0, 1.0)
        limit = WASTED_PER_MINUTE if limit is None else limit
        self._budget = CostBudget(number("wasted_per_minute", limit, 0.0, float("inf"), unit="ms"))
        self._allowlist = ToolAllowlist(
            allowed=options.get("allowed", ()),
            dangerous=options.get("dangerous", ()),
            annotations=options.get("annotations", {}),
        )
        seed, self._clock = options.get("seed"), options.get("clock", time.monotonic)
        if isinstance(seed, bool) or not isinstance(seed, int | None):
            raise InvalidArgument(f"seed must be a whole number, not {seed!r:.64}")
        function("clock", self._clock)
        self._random = random.Random(seed)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def _decide(self, guess: Guess, mode: Mode, threshold: Threshold) -> SpeculationDecision:
        with self._lock:
            explore = self._random.random() < self._exploration
            fits = self._budget.fits(guess.cost or 0.0, self._clock())
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

    def missed(self, cost: float) -> None:
        """Count the cost of a wrong guess that you started yourself; attempts do it for theirs.

        `cost`: wasted, in ms. Raises `InvalidArgument`.
        """
        number("cost", cost, 0.0, LARGEST_MS, unit="ms")
        with self._lock:
            self._budget.settle(0.0, cost, self._clock())

    def stats(self) -> dict[str, float]:
        """Return counts since construction.

        Decisions: `speculate`, `suggest`, `ask`, and `explored` (part of `speculate`). Attempts:
        `started`, `discarded` (part of it), `failed` (part of that: right, but the guessed call
        failed). `unlogged`: events that could not be logged. `wasted`: ms within the last minute.
        """
        with self._lock:
            counts: dict[str, float] = {name: self._counts[name] for name in _COUNTED}
            return {**counts, "wasted": self._budget.wasted(self._clock())}


class Speculator(_BaseSpeculator):
    """Decides about guesses. Thread-safe. Options: see `Options`.

    speculator = Speculator(thresholds, allowed={"search"})
    choice = speculator.decide(context, "search", 0.93, gain=400, cost=900)
    if choice.action == "speculate": ...
    """

    def __init__(self, thresholds: Thresholds, **options: Unpack[Options]) -> None:
        """Raises `InvalidArgument` naming an option that is unknown or cannot be used."""
        super().__init__(**options)
        _require_reader(thresholds, asynchronous=False)
        self._thresholds = thresholds

    def decide(
        self,
        context: Context,
        tool: str,
        confidence: float,
        *,
        gain: float | None = None,
        cost: float | None = None,
    ) -> SpeculationDecision:
        """Decide whether to speculate, suggest or ask, with the reason.

        Args:
            context: As for `Thresholds.get`; its `agent_id` may have a mode of its own. Completed
                from the current `headstart.workflow`.
            tool: The guessed tool.
            confidence: Of the guess, in [0, 1].
            gain: Latency in ms that a hit saves; by default the context's average.
            cost: Cost in ms that a miss wastes; by default the context's average.

        Raises:
            InvalidArgument: Names the argument or key that cannot be used.
        """
        guess = check_guess(Guess(tool, confidence, gain, cost))
        context = _complete_context(context, self._thresholds)
        mode = self._thresholds.mode(*_tenant_and_agent(context))
        return self._decide(guess, mode, self._thresholds.get(context, tool=tool))


def _require_reader(thresholds: object, *, asynchronous: bool) -> None:
    """Raise `InvalidArgument` for a reader of the wrong kind."""
    get = getattr(thresholds, "get", None)
    wanted = "AsyncThresholds" if asynchronous else "Thresholds"
    fits = callable(get) and callable(getattr(thresholds, "mode", None))
    if not fits or inspect.iscoroutinefunction(get) is not asynchronous:
        raise InvalidArgument(
            f"thresholds must be of class {wanted}, not {type(thresholds).__name__}"
        )


class AsyncSpeculator(_BaseSpeculator):
    """`Speculator` for asyncio, which also runs guessed calls. Options: see `Options`.

    Predictions and outcomes are logged to `emitter`, if one is given.

        async with speculator.attempt(context, "search", args, run, confidence=0.93) as attempt:
            call = await model.next_call()
            guess = await attempt.resolve(call.name, call.arguments)
            result = guess.value if guess.hit else await make(call)
    """

    def __init__(
        self,
        thresholds: AsyncThresholds,
        emitter: EventSink | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Raises `InvalidArgument` naming an option that is unknown or cannot be used."""
        super().__init__(**options)
        _require_reader(thresholds, asynchronous=True)
        if emitter is not None and not callable(getattr(emitter, "emit", None)):
            raise InvalidArgument(f"emitter must be an Emitter, not {emitter!r:.64}")
        self._thresholds, self._emitter = thresholds, emitter

    async def decide(
        self,
        context: Context,
        tool: str,
        confidence: float,
        *,
        gain: float | None = None,
        cost: float | None = None,
    ) -> SpeculationDecision:
        """Decide whether to speculate, suggest or ask; see `Speculator.decide`."""
        guess = check_guess(Guess(tool, confidence, gain, cost))
        return await self._choose(_complete_context(context, self._thresholds), guess)

    async def _choose(self, context: Context, guess: Guess) -> SpeculationDecision:
        mode = await self._thresholds.mode(*_tenant_and_agent(context))
        return self._decide(guess, mode, await self._thresholds.get(context, tool=guess.tool))

    def attempt(
        self,
        context: Context,
        tool: str,
        arguments: object,
        call: Callable[[], Awaitable[T]],
        *,
        confidence: float,
        gain: float | None = None,
        cost: float | None = None,
    ) -> Attempt[T]:
        """Return an attempt at a guessed call, to be entered with `async with`.

        Args:
            context: As for `decide`. With an emitter it must have a `workflow_id`, its own or that
                of the current `headstart.workflow`.
            tool: The guessed tool.
            arguments: The guessed arguments: a mapping, or JSON as model APIs give it.
            call: Makes the guessed call: a function that returns an awaitable. It must tolerate
                cancellation, which happens if the guess is wrong. Pass a blocking function as
                `lambda: asyncio.to_thread(function)`.
            confidence: Of the guess, in [0, 1].
            gain: As for `decide`.
            cost: As for `decide`.

        Raises:
            InvalidArgument: `call` or another argument cannot be used, or a key of the context is a
                misspelling of a level or an id.
            ValueError: The `workflow_id` is missing.
        """
        check_call(call)
        guess = check_guess(Guess(tool, confidence, gain, cost))
        context = _complete_context(context, self._thresholds)
        log = PredictionLog(self._emitter, context, guess, failed=partial(self._count, "unlogged"))
        return Attempt(_Decider(self, context, guess), log, arguments, call, self._clock)

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def _begin(self, guess: Guess) -> bool:
        with self._lock:
            begun = self._budget.reserve(guess.cost or 0.0, self._clock())
            self._counts["started"] += begun
        return begun

    def _end(self, guess: Guess, wasted: float | None, failed: bool) -> None:
        with self._lock:
            self._counts["discarded"] += wasted is not None
            self._counts["failed"] += failed
            self._budget.settle(guess.cost or 0.0, wasted or 0.0, self._clock())


class _Decider(NamedTuple):
    """Implements `headstart.speculation.attempt.AttemptDecider` for one guess."""

    speculator: AsyncSpeculator
    context: Context
    guess: Guess

    async def choose(self) -> SpeculationDecision:
        return await self.speculator._choose(self.context, self.guess)

    def begin(self) -> bool:
        return self.speculator._begin(self.guess)

    def end(self, wasted: float | None, *, failed: bool = False) -> None:
        self.speculator._end(self.guess, wasted, failed)


def _complete_context(context: object, thresholds: object) -> Context:
    """Return a context completed from the current scope. Raises `InvalidArgument`."""
    given = mapping("context", context)
    complete = in_scope(given)
    identifier("workflow_type", complete.get("workflow_type"))
    if "tenant" in complete:
        identifier("tenant", complete["tenant"])
    if isinstance(thresholds, BaseReader):
        thresholds.check(given, complete)
    return complete


def _tenant_and_agent(context: Context) -> tuple[str, str | None]:
    """Return the tenant and agent of a context, which determine its mode."""
    tenant, agent = context.get("tenant"), context.get("agent_id")
    return "default" if tenant is None else str(tenant), None if agent is None else str(agent)
