"""A thousand runs of an agent with faults everywhere: nothing stays open or is used twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headstart.prediction.interface import Evidence, PredictedCall, ToolCall
from headstart.speculation import task_ids
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.calls import RequestedCall
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.speculator import AsyncSpeculator
from headstart.speculation.started_call import StartedCall
from tests.client.speculation.turns import CONTEXT, FOREVER, Log, speculate

RUNS = 1_000
AT_ONCE = 25
EVIDENCE = Evidence(9, 0.9, 0.9, 2, "repeat")
TOOLS = ["search", "lookup", "read"]


class ModelDown(RuntimeError):
    pass


class Result:
    """What a call gave; each is used at most once."""

    is_error = False


class Guesses:
    """A predictor that fails at times."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def user(self, text: str) -> None: ...

    def said(self, text: str) -> None: ...

    def result(self, tool: str, result: object, *, error: bool = False) -> None: ...

    def calls(self, calls: Sequence[ToolCall]) -> None: ...

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        if self._draw.random() < 0.03:
            raise LookupError("the predictor fails")
        return [
            PredictedCall(self._draw.choice(TOOLS), {"n": self._draw.randrange(2)}, 0.9, EVIDENCE)
            for _ in range(self._draw.randrange(limit + 1))
        ]


class Agent:
    """A run of an agent whose tools, model and hooks fail at random."""

    def __init__(self, run: AgentRun[Any], draw: random.Random) -> None:
        self.run, self.draw = run, draw
        self.used: list[object] = []

    async def make(self, tool: str, arguments: Mapping[str, object]) -> object:
        fault = self.draw.random()
        if fault < 0.1:
            raise OSError("the tool fails at once")
        try:
            await asyncio.sleep(FOREVER if fault < 0.2 else self.draw.random() * 0.002)
        except asyncio.CancelledError:
            if self.draw.random() < 0.2:
                await asyncio.sleep(0)  # does not end at once
            raise
        if fault < 0.3:
            raise BaseException("the tool fails later")
        result = Result()
        result.is_error = fault < 0.4
        return result

    async def model(self) -> list[RequestedCall]:
        fault = self.draw.random()
        if fault < 0.1:
            raise ModelDown
        if fault > 0.3:  # or the model is as quick as the guess
            await self.run.guessed()
        await asyncio.sleep(FOREVER if fault < 0.2 else self.draw.random() * 0.002)
        return [
            RequestedCall(str(id), self.draw.choice(TOOLS), {"n": self.draw.randrange(2)})
            for id in range(self.draw.randrange(4))
        ]

    async def hook(self, call: RequestedCall, match: StartedCall[Any] | None) -> None:
        if match is not None and self.draw.random() < 0.95:  # or the hook is bypassed
            try:
                self.used.append(await match.result())
            except GuessFailed:
                match = None
        if self.draw.random() < 0.9:  # or the framework has no hook for this end
            self.run.tool_finished(call.id, "x", error=match is None)

    async def turn(self) -> None:
        self.run.model_started(self.make)
        try:
            calls = await asyncio.wait_for(self.model(), 0.1)
        except (ModelDown, TimeoutError):
            if self.draw.random() < 0.5:  # or the framework has no hook for a failed model
                self.run.model_failed()
            return
        matches = self.run.model_answered(calls)
        hooks = [self.hook(call, matches.get(call.id)) for call in calls]
        await asyncio.wait_for(asyncio.gather(*hooks), 0.1)

    async def act(self) -> None:
        for _ in range(self.draw.randrange(1, 4)):
            await self.turn()
        if self.draw.random() < 0.9:
            self.run.finished()


async def one(speculator: AsyncSpeculator, seed: int, used: list[object]) -> None:
    draw = random.Random(seed)
    context = {**CONTEXT, "workflow_id": f"w{seed}"}
    predictor = Guesses(draw) if draw.random() < 0.95 else None
    agent = Agent(AgentRun(speculator, predictor, context, guess_s=1.0), draw)
    acting = asyncio.create_task(agent.act())
    if draw.random() < 0.1:
        asyncio.get_running_loop().call_later(draw.random() * 0.05, acting.cancel)
    await asyncio.wait([acting])
    if not acting.cancelled():
        assert isinstance(acting.exception(), TimeoutError | None)
    used += agent.used


def test_nothing_stays_open_and_no_result_is_used_twice() -> None:
    before = dict(task_ids._open)
    used: list[object] = []

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with speculator:
            for first in range(0, RUNS, AT_ONCE):
                seeds = range(first, first + AT_ONCE)
                await asyncio.gather(*(one(speculator, seed, used) for seed in seeds))
        assert asyncio.all_tasks() == {asyncio.current_task()}
        starts = Counter(
            (event["workflow_id"], event["task_id"]) for event in log.of("speculation_start")
        )
        ends = Counter(
            (event["workflow_id"], event["task_id"])
            for event in log.of("task_complete")
            if event["data"].get("prediction")
        )
        assert set(starts.values()) == set(ends.values()) == {1}
        assert ends.keys() <= starts.keys()
        hits = [
            event
            for event in log.of("task_complete")
            if (prediction := event["data"].get("prediction"))
            and prediction["was_correct"]
            and prediction["speculated"]
        ]
        assert len(hits) == len(used)

    stats = speculate(test, allowed=TOOLS, wasted_per_minute=float("inf"))
    assert task_ids._open == before
    assert len(set(map(id, used))) == len(used) > 20
    assert stats["started"] == stats["discarded"] + len(used)
    assert stats["failed"] > 10
    assert stats["unlogged"] == 0
