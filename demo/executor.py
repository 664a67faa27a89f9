"""One executor process: replays runs, predicts, reads thresholds, decides, emits everything.

`python -m demo.executor JSON` with the fields of `Assignment`; prints a JSON line of its progress
each second and a last one when it is done. Latencies are accounted, never slept.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import headstart
from demo.call_times import CallTimes, recorded_ms
from demo.predictor import PredictedCall, Predictor
from demo.repeated import Repeats
from demo.synthetic_world import SyntheticRun, synthetic_runs
from demo.tool_latency import LatencyModel
from demo.traces import END, AgentRun, BrokenLine, Step, read_runs


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
    """A run with the context that it belongs to."""

    workflow_type: str
    domain: str
    user: str
    steps: tuple[Step, ...]


def workflows(work: Assignment, started: float) -> Iterator[DemoWorkflow]:
    """Yield this executor's share: of the trace file once, or of the synthetic world in time."""
    if work.traces is not None:

        def ignore(_broken: BrokenLine) -> None:
            """The demo has reported it already."""

        repeats = Repeats()
        runs = filter(repeats.first, read_runs(work.traces, ignore))
        for run in itertools.islice(runs, work.executor, None, work.executors):
            yield _traced(run)
        return

    def progress() -> float:
        return min(1.0, (time.monotonic() - started) / work.seconds)

    for synthetic in synthetic_runs(work.seed, work.executor, work.executors, progress):
        if progress() >= 1.0:
            return
        yield _synthetic(synthetic)


def _traced(run: AgentRun) -> DemoWorkflow:
    return DemoWorkflow(run.source, run.domain, run.agent_model, run.steps)


def _synthetic(run: SyntheticRun) -> DemoWorkflow:
    return DemoWorkflow(run.workflow_type, run.domain, run.user, run.steps)


def failed_prediction(guess: PredictedCall, *, started: bool) -> dict[str, Any]:
    """Return the prediction in the completion of a failed call: a right guess is not a hit then.

    Also if it was not started: the log is evaluated under policies that would have started it.
    """
    prediction = {"tool_id": guess.tool, "was_correct": False, "speculated": started}
    return {**prediction, "failed": True} if started else prediction


class Executor:
    """Executes workflows and emits all events."""

    def __init__(
        self, work: Assignment, emitter: headstart.Emitter, thresholds: headstart.Thresholds
    ) -> None:
        self._work, self._emitter, self._thresholds = work, emitter, thresholds
        self._predictor = Predictor()
        self._times = CallTimes(LatencyModel(work.seed, work.executor, work.cost_ratio))
        self._started = self._said = time.monotonic()
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
        counts = f"{workflow.workflow_type}/{workflow.domain}"
        history: list[str] = []
        before: Step | None = None
        for index, step in enumerate(workflow.steps):
            task = {**place, "task_id": str(index)}
            guess = self._predictor.predict(counts, history)
            started = guess is not None and self._decide(task, workflow.domain, guess)
            self._complete(task, workflow.domain, step, guess, before, started=started)
            self._times.learn(step)
            before = step
            self._predictor.learn(counts, history, step.tool)
            history.append(step.tool)
        self._predictor.learn(counts, history, END)
        self._emit(place, "workflow_complete", {"outcome": "success"})

    def _decide(self, task: dict[str, str], domain: str, guess: PredictedCall) -> bool:
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
        step: Step,
        guess: PredictedCall | None,
        before: Step | None,
        *,
        started: bool,
    ) -> None:
        prediction: dict[str, Any] | None = None
        if guess is None:
            result: dict[str, Any] = {"execution_time_ms": self._times.of_call(step)}
        else:
            latency, assumed, _, failed = self._times.of_guess(guess.tool, step, before)
            if failed:
                prediction = failed_prediction(guess, started=started)
            took = recorded_ms(step)
            result = {
                "execution_time_ms": latency.execution_ms if took is None else took,
                "gain_ms": latency.gain_ms,
                "cost_ms": latency.cost_ms,
                "assumed": assumed,
            }
        data = {"context": {"domain": domain}, "result": result}
        if prediction is not None:
            data["prediction"] = prediction
        self._emit(task, "task_complete", data, tool_id=step.tool, success=not step.error)
        self.calls += 1

    def _emit(self, place: dict[str, str], kind: str, data: dict[str, Any], **more: Any) -> None:
        self._emitter.emit({**place, "event_type": kind, "data": data, **more})
        self.emitted += 1
        ahead = self.emitted / self._work.events_per_s - (time.monotonic() - self._started)
        if ahead > 0:
            time.sleep(ahead)
        if time.monotonic() - self._said > 1.0:
            self.say(done=False)

    def say(self, *, done: bool) -> None:
        """Print one line of progress."""
        self._said = time.monotonic()
        line = {"emitted": self.emitted, "calls": self.calls, "done": done}
        print(json.dumps(line), flush=True)


def main() -> None:
    """Do what the first argument assigns."""
    work = Assignment(**json.loads(sys.argv[1]))
    started = time.monotonic()
    with (
        headstart.Emitter(work.kafka, spool=work.spool) as emitter,
        headstart.Thresholds(work.redis, levels=work.levels) as thresholds,
    ):
        executor = Executor(work, emitter, thresholds)
        for number, workflow in enumerate(workflows(work, started)):
            executor.execute(number, workflow)
        emitter.flush()
        executor.say(done=True)


if __name__ == "__main__":
    main()
