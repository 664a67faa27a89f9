"""The speculator that executors import: is this guess worth starting now, and what if it is wrong?

It asks a reader for the threshold and the mode, the declared tools for their safety, the breaker
for what may still be wasted. One for asyncio, which also runs guessed calls, one for threads.
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
from headstart.speculation.decision import Action, Guess, SpeculationDecision, checked, decided
from headstart.speculation.guessed_call import check_call
from headstart.speculation.prediction_log import Emits, PredictionLog
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
"""The largest cost that may be told of, in ms; as the service learns from no larger one."""

_COUNTED: Final = (
    "speculate", "suggest", "ask", "explored", "started", "discarded", "failed", "unlogged",
)  # fmt: skip

T = TypeVar("T")


class Options(TypedDict, total=False):
    """Settings of a speculator. A tool is run on a guess only if it is declared safe."""

    allowed: Collection[str]
    """Tools that are safe to run early and to throw away."""
    dangerous: Collection[str]
    """Tools that are never run on a guess, whatever else is said of them."""
    annotations: Mapping[str, object]
    """By tool name MCP annotations, a framework's metadata or its tool: mappings or objects.
    A tool that they call read-only is safe; one that they call destructive is never run."""
    wasted_per_minute: float
    """Cost (ms) of wrong guesses after which none is started: 60,000, over all contexts. 0: none is
    started; infinity: no limit."""
    exploration: float
    """Share of the declined guesses of safe tools that is tried all the same: 0."""
    seed: int
    """Of the draw for exploration: the same guesses, the same draws."""
    clock: Callable[[], float]
    """Monotonic seconds."""


class _Speculating:
    """What both speculators share: everything but asking the reader."""

    def __init__(self, **options: Unpack[Options]) -> None:
        refuse_unknown(type(self).__name__, options, Options.__annotations__)
        share, limit = options.get("exploration", 0.0), options.get("wasted_per_minute")
        self._exploration = number("exploration", share, 0.0, 1.0)
        limit = WASTED_PER_MINUTE if limit is None else limit
        self._breaker = CostBudget(number("wasted_per_minute", limit, 0.0, float("inf"), unit="ms"))
        self._eligibility = ToolAllowlist(
            allowed=options.get("allowed", ()),
            dangerous=options.get("dangerous", ()),
            annotations=options.get("annotations", {}),
        )
        seed, self._clock = options.get("seed"), options.get("clock", time.monotonic)
        if isinstance(seed, bool) or not isinstance(seed, int | None):
            raise InvalidArgument(f"seed: a whole number, not {seed!r:.64}")
        function("clock", self._clock)
        self._random = random.Random(seed)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def _decided(self, guess: Guess, mode: Mode, threshold: Threshold) -> SpeculationDecision:
        with self._lock:
            explore = self._random.random() < self._exploration
            fits = self._breaker.fits(guess.cost or 0.0, self._clock())
            choice = decided(
                guess,
                threshold,
                mode,
                objection=self._eligibility.objection(guess.tool),
                fits=fits,
                explore=explore,
            )
            self._counts[choice.action] += 1
            self._counts["explored"] += choice.explored
        return choice

    def missed(self, cost: float) -> None:
        """Tell that a call which was started on a guess was not wanted, and what it wasted.

        For calls that you started yourself; an attempt does it. `cost`: in ms. Raises `ValueError`.
        """
        number("cost", cost, 0.0, LARGEST_MS, unit="ms")
        with self._lock:
            self._breaker.settle(0.0, cost, self._clock())

    def stats(self) -> dict[str, float]:
        """Return counts since the beginning.

        Decisions: `speculate`, `suggest`, `ask`, and `explored` (part of the first). Attempts:
        `started`, `discarded` (of those), `failed` (of those: right, but the guessed call failed),
        `unlogged` events. `wasted`: ms within the last minute.
        """
        with self._lock:
            counts: dict[str, float] = {name: self._counts[name] for name in _COUNTED}
            return {**counts, "wasted": self._breaker.wasted(self._clock())}


class Speculator(_Speculating):
    """Decides about guesses; from any number of threads.

    speculator = Speculator(thresholds, allowed={"search"})
    choice = speculator.decide(context, "search", 0.93, gain=400, cost=900)
    if choice.action == "speculate": ...
    """

    def __init__(self, thresholds: Thresholds, **options: Unpack[Options]) -> None:
        """Take `Options`. Raises `InvalidArgument` naming one that is unknown or cannot be used."""
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
        """Return speculate, suggest or ask, with the reason.

        `gain`: latency that a hit saves, `cost`: what a miss wastes, in ms; the context's averages
        where not given. `context` as for `Thresholds.get`, its `agent_id` may have a mode of its
        own. Raises `ValueError` naming what is wrong.
        """
        guess = checked(Guess(tool, confidence, gain, cost))
        context = _placed(context, self._thresholds)
        mode = self._thresholds.mode(*_who(context))
        return self._decided(guess, mode, self._thresholds.get(context, tool=tool))


def _require_reader(thresholds: object, *, asynchronous: bool) -> None:
    """Raise `InvalidArgument` where a speculator is given another reader than its own kind."""
    get = getattr(thresholds, "get", None)
    wanted = "AsyncThresholds" if asynchronous else "Thresholds"
    fits = callable(get) and callable(getattr(thresholds, "mode", None))
    if not fits or inspect.iscoroutinefunction(get) is not asynchronous:
        raise InvalidArgument(f"thresholds: of class {wanted}, not {type(thresholds).__name__}")


class AsyncSpeculator(_Speculating):
    """`Speculator` for asyncio, which also runs guessed calls; the same further arguments.

    Predictions and outcomes go to `emitter`, where one is given.

        async with speculator.attempt(context, "search", args, run, confidence=0.93) as attempt:
            call = await model.next_call()
            guess = await attempt.resolve(call.name, call.arguments)
            result = guess.value if guess.hit else await make(call)
    """

    def __init__(
        self,
        thresholds: AsyncThresholds,
        emitter: Emits | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Take `Options`. Raises `InvalidArgument` naming one that is unknown or cannot be used."""
        super().__init__(**options)
        _require_reader(thresholds, asynchronous=True)
        if emitter is not None and not callable(getattr(emitter, "emit", None)):
            raise InvalidArgument(f"emitter: an Emitter, not {emitter!r:.64}")
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
        """Return speculate, suggest or ask, with the reason; see `Speculator.decide`."""
        guess = checked(Guess(tool, confidence, gain, cost))
        return await self._choose(_placed(context, self._thresholds), guess)

    async def _choose(self, context: Context, guess: Guess) -> SpeculationDecision:
        mode = await self._thresholds.mode(*_who(context))
        return self._decided(guess, mode, await self._thresholds.get(context, tool=guess.tool))

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

        `call` makes the guessed call, of `tool` with `arguments` (a mapping, or JSON as model APIs
        give it), and returns an awaitable; it is cancelled where the guess was wrong, so it must
        bear that. A function that blocks is called as `lambda: asyncio.to_thread(function)`. The
        rest is as for `decide`. Within `headstart.workflow` the context is filled up from it;
        elsewhere, with an emitter, it names its `workflow_id`. Raises `ValueError`, and
        `TypeError` where `call` cannot be used, or the context has a key that is nearly the name of
        a level or an id.
        """
        check_call(call)
        guess = checked(Guess(tool, confidence, gain, cost))
        context = _placed(context, self._thresholds)
        log = PredictionLog(self._emitter, context, guess, failed=partial(self._count, "unlogged"))
        return Attempt(_Deciding(self, context, guess), log, arguments, call, self._clock)

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def _begin(self, guess: Guess) -> bool:
        with self._lock:
            begun = self._breaker.reserve(guess.cost or 0.0, self._clock())
            self._counts["started"] += begun
        return begun

    def _end(self, guess: Guess, wasted: float | None, failed: bool) -> None:
        with self._lock:
            self._counts["discarded"] += wasted is not None
            self._counts["failed"] += failed
            self._breaker.settle(guess.cost or 0.0, wasted or 0.0, self._clock())


class _Deciding(NamedTuple):
    """What an attempt needs of its speculator: see `headstart.speculation.attempt.Deciding`."""

    speculator: AsyncSpeculator
    context: Context
    guess: Guess

    async def choose(self) -> SpeculationDecision:
        return await self.speculator._choose(self.context, self.guess)

    def begin(self) -> bool:
        return self.speculator._begin(self.guess)

    def end(self, wasted: float | None, *, failed: bool = False) -> None:
        self.speculator._end(self.guess, wasted, failed)


def _placed(context: object, thresholds: object) -> Context:
    """Return a context with what the current scope has of it. Raises `InvalidArgument`."""
    given = mapping("context", context)
    placed = in_scope(given)
    identifier("workflow_type", placed.get("workflow_type"))
    if "tenant" in placed:
        identifier("tenant", placed["tenant"])
    if isinstance(thresholds, BaseReader):
        thresholds.check(given, placed)
    return placed


def _who(context: Context) -> tuple[str, str | None]:
    """Return tenant and agent of a context, as its mode is asked for."""
    tenant, agent = context.get("tenant"), context.get("agent_id")
    return "default" if tenant is None else str(tenant), None if agent is None else str(agent)
