"""What a tool call costs an agent that speculates: with no guess, and with one that is right.

The tool and the model take no time, so what is left is the client. Two figures per case: the time
that the hooks of one tool call hold up the agent, and the process's CPU time per tool call, which
also has the predictor's thread and the guessed call's task. The threshold is known without Redis,
and events are validated and dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from bench.support.measuring import echo
from bench.support.repeating import repeated
from headstart import AsyncSpeculator, GuessFailed, RequestedCall, Threshold
from headstart.prediction.interface import Evidence, PredictedCall, ToolCall
from headstart.speculation.agent_run import AgentRun

REPEAT: Final = 5
TURNS: Final = 5_000
CONTEXT: Final = {"workflow_type": "refund", "workflow_id": "w1", "domain": "retail"}
GUESS: Final = PredictedCall("search", {"n": 1}, 0.9, Evidence(9, 0.9, 0.9, 2, "repeat"))
CALLS: Final = [RequestedCall("1", "search", {"n": 1})]


class _Thresholds:
    """A reader whose threshold is known."""

    async def mode(self, *_: object) -> str:
        return "act"

    async def get(self, *_: object, **__: object) -> Threshold:
        return Threshold(speculate=0.5, suggest=0.3)


class _Dropping:
    """An emitter that keeps nothing."""

    def emit(self, _event: Mapping[str, Any], /) -> str:
        return ""


class _Predictor:
    """A predictor that always makes the same guesses."""

    def __init__(self, guesses: Sequence[PredictedCall]) -> None:
        self._guesses = guesses

    def user(self, text: str) -> None: ...

    def said(self, text: str) -> None: ...

    def result(self, tool: str, result: object, *, error: bool = False) -> None: ...

    def calls(self, calls: Sequence[ToolCall]) -> None: ...

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        return self._guesses[:limit]


CASES: Final[dict[str, _Predictor | None]] = {
    "no_predictor": None,
    "no_guess": _Predictor(()),
    "hit": _Predictor((GUESS,)),
}


def run(repeat: int = REPEAT) -> dict[str, Any]:
    """Return the figures of every case, in microseconds: medians of several runs."""

    def every_case(number: int) -> dict[str, float | None]:
        figures: dict[str, float | None] = {}
        for name, predictor in CASES.items():
            found = asyncio.run(_case(predictor))
            figures |= {f"{name}_{figure}": value for figure, value in found.items()}
        echo(f"round {number + 1}: {figures}")
        return figures

    return {
        **repeated(every_case, repeat),
        "framing": f"{TURNS:,} turns of one call in one event loop; hooks: the time in which "
        "model_started, model_answered, the result of a hit, and tool_finished hold up the agent",
    }


async def _make(tool: str, arguments: object) -> str:
    return f"{tool} {arguments}"


async def _case(predictor: _Predictor | None) -> dict[str, float]:
    thresholds = cast("Any", _Thresholds())
    speculator = AsyncSpeculator(thresholds, _Dropping(), allowed={"search"})
    agent_run = AgentRun[str](speculator, predictor, CONTEXT, guess_s=10.0)
    held = []
    cpu = time.process_time()
    for _ in range(TURNS):
        begun = time.perf_counter()
        agent_run.model_started(_make)
        first = time.perf_counter() - begun
        await agent_run.guessed()  # the model is slower than the guess
        begun = time.perf_counter()
        for call, match in agent_run.model_answered(CALLS).items():
            try:
                await match.result()
            except GuessFailed:
                raise AssertionError(f"call {call} was to be a hit") from None
        agent_run.tool_finished("1", "found")
        held.append(first + time.perf_counter() - begun)
    cpu = time.process_time() - cpu
    agent_run.finished()
    held.sort()
    return {
        "hooks_p50_us": round(held[TURNS // 2] * 1e6, 1),
        "hooks_p99_us": round(held[TURNS * 99 // 100] * 1e6, 1),
        "cpu_us": round(cpu / TURNS * 1e6, 1),
    }
