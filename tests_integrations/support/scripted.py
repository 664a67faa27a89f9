"""Parts that tests of every framework share: thresholds, a predictor, and events in a spool."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headstart import Emitter, Threshold
from headstart.integrations.setup import SpeculationSetup
from headstart.prediction.interface import Evidence, PredictedCall, ToolCall
from headstart.spool.reader import SpoolReader

EVIDENCE = Evidence(40, 0.95, 0.97, 12, "arguments")
Guess = tuple[str, Mapping[str, object]]


class Act:
    """Thresholds that start every guess of at least 0.5; for event loops."""

    async def mode(self, tenant: str = "default", agent_id: str | None = None) -> str:
        return "act"

    async def get(self, context: Any = None, /, *, tool: str | None = None) -> Threshold:
        return Threshold(speculate=0.5, suggest=0.4)


class ActInThreads:
    """`Act` for threads."""

    def mode(self, tenant: str = "default", agent_id: str | None = None) -> str:
        return "act"

    def get(self, context: Any = None, /, *, tool: str | None = None) -> Threshold:
        return Threshold(speculate=0.5, suggest=0.4)


class Script:
    """Makes predictors of runs that guess, at each call of the model, what the script has next."""

    def __init__(self, *turns: Sequence[Guess], received: list[Any] | None = None) -> None:
        self.turns, self.received = turns, [] if received is None else received

    def run(self, *, agent: str = "", user_id: str = "") -> ScriptedRun:
        return ScriptedRun(list(self.turns), self.received)


class ScriptedRun:
    """Appends what it receives to `received`."""

    def __init__(self, turns: list[Sequence[Guess]], received: list[Any]) -> None:
        self._turns, self._received = turns, received

    def user(self, text: str) -> None:
        self._received.append(("user", text))

    def said(self, text: str) -> None:
        self._received.append(("said", text))

    def result(self, tool: str, result: object, *, error: bool = False) -> None:
        self._received.append((tool, result, error))

    def guess(self, limit: int = 3) -> list[PredictedCall]:
        turn = self._turns.pop(0) if self._turns else ()
        return [PredictedCall(tool, arguments, 0.9, EVIDENCE) for tool, arguments in turn][:limit]

    def calls(self, calls: Sequence[ToolCall]) -> None:
        self._received.append([(call.tool, dict(call.arguments)) for call in calls])


class SpooledEvents:
    """An emitter whose spool nothing ships, and the events in it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.emitter = Emitter("127.0.0.1:1", spool=directory, shipper="none")

    def read(self) -> list[dict[str, Any]]:
        """Return all events so far, in their order."""
        found: list[dict[str, Any]] = []
        folders = self._directory.iterdir() if self._directory.exists() else ()
        for folder in sorted(each for each in folders if each.is_dir()):
            reader = SpoolReader(folder, 1e9, lambda: time.time_ns() // 1_000_000)
            while items := reader.read():
                found += [json.loads(item.event) for item in items]
        return found

    def calls(self) -> list[tuple[str, Any]]:
        """Return the tool and the arguments of each call that the agent made."""
        return [
            (event["tool_id"], event["data"].get("arguments"))
            for event in self.read()
            if event["event_type"] == "task_complete"
            and event["data"].get("prediction", {}).get("was_correct", True)
        ]

    def kinds(self) -> list[str]:
        """Return each event in short: its type, its tool, and how a guess turned out."""
        return [_short(event) for event in self.read()]


def _short(event: Mapping[str, Any]) -> str:
    prediction = event.get("data", {}).get("prediction", {})
    if event["event_type"] == "speculation_start":
        return f"{'start' if prediction['speculated'] else 'guess'} {prediction['tool_id']}"
    if event["event_type"] == "workflow_complete":
        return f"end {event['data']['outcome']}"
    if not prediction:
        return f"{event['tool_id']} {'ok' if event['success'] else 'error'}"
    right = prediction["was_correct"]
    kind = "failed" if prediction.get("failed") else "hit" if right else "miss"
    return f"{kind} {prediction['tool_id']}"


def set_up(events: SpooledEvents, predictor: Any, **arguments: Any) -> SpeculationSetup:
    """Return a set-up that starts every guess of `read_only` tools, whatever was wasted before."""
    return SpeculationSetup(
        "support", predictor=predictor, emitter=events.emitter, thresholds=Act(),
        thread_thresholds=ActInThreads(), guess_s=5.0,
        **{"wasted_per_minute": float("inf"), **arguments},
    )  # fmt: skip


def wait_until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Wait for a condition of another thread. Raises `TimeoutError`."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the condition is still not met")
        time.sleep(0.002)
