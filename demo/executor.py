"""One executor process: replays runs, predicts, reads thresholds, decides, emits everything.

`python -m demo.executor JSON` with the fields of `Assignment`, but for the addresses, which are in
HEADSTART_KAFKA and HEADSTART_REDIS; prints a JSON line of its progress each second and a last one
when it is done. Latencies are accounted, never slept.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import headstart
from demo.call_times import CallTimes, recorded_ms
from demo.next_calls import CallGuesser, GuessedStep, with_arguments
from demo.predictor import PredictedTool
from demo.repeated import Repeats
from demo.requests import recorded_arguments, recorded_request, synthetic_request
from demo.synthetic_world import SyntheticRun, synthetic_runs
from demo.tool_latency import LatencyModel
from demo.traces import BrokenLine, Step, TraceRun, read_runs

ADDRESSES = ("kafka", "redis")
"""Fields of `Assignment` that are given by variables."""


@dataclass(frozen=True)
class Assignment:
    """The configuration of one executor."""

    kafka: str
    redis: str
    spool: str
    tenant: str
    seed: int
    executor: int
    executors: int
    events_per_s: float
    cost_ratio: float
    seconds: float
    traces: str | None
    levels: tuple[str, ...]


@dataclass(frozen=True)
class DemoWorkflow:
    """A run with the context that it belongs to.

    `request`: what the user asks for, "" if unknown; `run`: what was recorded of it, if it was.
    """

    workflow_type: str
    domain: str
    user: str
    steps: tuple[Step, ...]
    run: TraceRun | None = None
    request: str = ""


def workflows(work: Assignment, started: float) -> Iterator[DemoWorkflow]:
    """Yield this executor's share: of the trace file once, or of the synthetic world in time."""
    if work.traces is not None:

        def ignore(_broken: BrokenLine) -> None:
            """The demo has reported it already."""

        repeats = Repeats()
        runs = filter(repeats.first, read_runs(work.traces, ignore, with_content=True))
        for run in itertools.islice(runs, work.executor, None, work.executors):
            yield _traced(run)
        return

    def progress() -> float:
        return min(1.0, (time.monotonic() - started) / work.seconds)

    for synthetic in synthetic_runs(work.seed, work.executor, work.executors, progress):
        if progress() >= 1.0:
            return
        yield _synthetic(synthetic)


def _traced(run: TraceRun) -> DemoWorkflow:
    request = recorded_request(run)
    return DemoWorkflow(run.source, run.domain, run.agent_model, run.steps, run, request)


def _synthetic(run: SyntheticRun) -> DemoWorkflow:
    request = synthetic_request(run)
    return DemoWorkflow(run.workflow_type, run.domain, run.user, run.steps, request=request)


def stated_outcome(
    guessed: GuessedStep, guess: PredictedTool, *, started: bool, failed: bool
) -> dict[str, Any] | None:
    """Return the prediction in a completion if the two names do not give its outcome; else None.

    A right guess of a call that failed is not a hit, also if it was not started: the log is
    evaluated under policies that would have started it. Of whole calls, the arguments count too.
    """
    correct = guessed.right and not failed
    if guessed.step is not None and correct == (guessed.step.tool == guess.tool):
        return None
    prediction = {"tool_id": guess.tool, "was_correct": correct, "speculated": started}
    return {**prediction, "failed": True} if started and failed else prediction


class Executor:
    """Executes workflows and emits all events."""

    def __init__(
        self, work: Assignment, emitter: headstart.Emitter, thresholds: headstart.Thresholds
    ) -> None:
        self._work, self._emitter, self._thresholds = work, emitter, thresholds
        self._guesser = CallGuesser()
        self._times = CallTimes(LatencyModel(work.seed, work.executor, work.cost_ratio))
        self._started = self._printed_at = time.monotonic()
        self.emitted = self.calls = 0

    def execute(self, number: int, workflow: DemoWorkflow) -> None:
        """Run one workflow: guess each call before it is made, decide, then see."""
        workflow_id = f"{self._work.tenant}-{self._work.executor}-{number}"
        place = {
            "tenant": self._work.tenant,
            "workflow_type": workflow.workflow_type,
            "workflow_id": workflow_id,
            "user_id": workflow.user,
            "agent_id": f"executor-{self._work.executor}",
        }
        before: Step | None = None
        made = 0
        for index, guessed in enumerate(self._steps(workflow)):
            task = {**place, "task_id": str(index)}
            guess = guessed.guess
            started = guess is not None and self._decide(task, workflow.domain, guess)
            arguments = recorded_arguments(workflow.run, made)
            self._complete(task, workflow.domain, guessed, before, arguments, started=started)
            if guessed.step is not None:
                made += 1
                self._times.learn(guessed.step)
                before = guessed.step
        asked = {"query": workflow.request} if workflow.request else {}
        self._emit(place, "workflow_complete", {"outcome": "success", **asked})

    def _steps(self, workflow: DemoWorkflow) -> Iterator[GuessedStep]:
        """Yield the calls of a workflow, and the replies at which a whole call was guessed."""
        counts = f"{workflow.workflow_type}/{workflow.domain}"
        if workflow.run is None or with_arguments(workflow.run) is None:
            named = self._guesser.named(counts, workflow.steps)
            yield from (each for each in named if each.step is not None)
            return
        for each in self._guesser.steps(counts, workflow.run):
            if each.step is not None or each.guess is not None:
                yield each

    def _decide(self, task: dict[str, str], domain: str, guess: PredictedTool) -> bool:
        """Speculate, suggest or only watch; the prediction is logged in any case.

        Return whether the guessed call is started.
        """
        threshold = self._thresholds.get({**task, "domain": domain})
        acts = self._thresholds.mode(task["tenant"], task["agent_id"]) == "act"
        started = acts and guess.confidence >= threshold.speculate
        prediction = {
            "tool_id": guess.tool,
            "mode": "speculative",
            "speculated": started,
            "threshold": threshold.speculate,
        }
        if not acts:
            prediction["not_startable"] = "mode"
        data = {"context": {"domain": domain}, "prediction": prediction}
        self._emit(task, "speculation_start", data, confidence=guess.confidence)
        if threshold.suggest <= guess.confidence < threshold.speculate:
            decision = {"type": "ail", "action": "suggest", "reasoning": f"call {guess.tool}?"}
            self._emit(task, "ail_decision", {"context": {"domain": domain}, "decision": decision})
        return started

    def _complete(
        self,
        task: dict[str, str],
        domain: str,
        guessed: GuessedStep,
        before: Step | None,
        arguments: str | None,
        *,
        started: bool,
    ) -> None:
        step, guess = guessed.step, guessed.guess
        prediction: dict[str, Any] | None = None
        result: dict[str, Any] = {}
        if guess is not None:
            latency, assumed, _, failed = self._times.of_guess(
                guess.tool, step, before, guessed.right
            )
            prediction = stated_outcome(guessed, guess, started=started, failed=failed)
            took = None if step is None else recorded_ms(step)
            result = {
                "execution_time_ms": latency.execution_ms if took is None else took,
                "gain_ms": latency.gain_ms,
                "cost_ms": latency.cost_ms,
                "assumed": assumed,
            }
        elif step is not None:
            result = {"execution_time_ms": self._times.of_call(step)}
        data: dict[str, Any] = {"context": {"domain": domain}, "result": result}
        if prediction is not None:
            data["prediction"] = prediction
        if step is None:
            self._emit(task, "task_complete", data, success=True)
            return
        if arguments is not None:
            data["arguments"] = arguments
        self._emit(task, "task_complete", data, tool_id=step.tool, success=not step.error)
        self.calls += 1

    def _emit(self, place: dict[str, str], kind: str, data: dict[str, Any], **more: Any) -> None:
        self._emitter.emit({**place, "event_type": kind, "data": data, **more})
        self.emitted += 1
        ahead = self.emitted / self._work.events_per_s - (time.monotonic() - self._started)
        if ahead > 0:
            time.sleep(ahead)
        if time.monotonic() - self._printed_at > 1.0:
            self.print_progress(done=False)

    def print_progress(self, *, done: bool) -> None:
        """Print one line of progress."""
        self._printed_at = time.monotonic()
        line = {"emitted": self.emitted, "calls": self.calls, "done": done}
        print(json.dumps(line), flush=True)


def main() -> None:
    """Do what the first argument assigns."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    given |= {each: os.environ[f"HEADSTART_{each.upper()}"] for each in ADDRESSES}
    work = Assignment(**given)
    started = time.monotonic()
    with (
        headstart.Emitter(work.kafka, spool=work.spool) as emitter,
        headstart.Thresholds(work.redis, levels=work.levels) as thresholds,
    ):
        executor = Executor(work, emitter, thresholds)
        for number, workflow in enumerate(workflows(work, started)):
            executor.execute(number, workflow)
        emitter.flush()
        executor.print_progress(done=True)


if __name__ == "__main__":
    main()
