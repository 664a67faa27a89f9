"""One executor under fire: emits at a steady rate and notes every id whose `emit()` returned."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from resource import RUSAGE_THREAD, getrusage
from typing import Any

from headstart import Emitter

WORKFLOWS = 24


@dataclass(frozen=True)
class Work:
    """What an executor does; `journal` is the file of the ids.

    `timings`: a file for what each `emit()` took, and in turn each write to the journal: [ns, how
    often it waited, rather than being kept from running].
    """

    kafka: str
    spool: str
    tenant: str
    journal: str
    events_per_s: float
    seed: int
    timings: str = ""


Emit = Callable[..., str]
Taken = list[tuple[int, int]]


def command(work: Work) -> list[str]:
    """Return the command line of an executor process."""
    return [sys.executable, "-m", "tests.chaos.executor", json.dumps(asdict(work))]


def main() -> None:
    """Emit until SIGTERM, then wait for nothing: what is in the spool is safe."""
    work = Work(**json.loads(sys.argv[1]))
    running = True

    def stop(*_: object) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)
    draw = random.Random(work.seed)
    journal = os.open(work.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    emitter = Emitter(work.kafka, spool=Path(work.spool))
    emits: Taken = []
    writes: Taken = []
    emit = _timed(emitter.emit, emits) if work.timings else emitter.emit
    note = _timed(os.write, writes) if work.timings else os.write
    begun, count = time.monotonic(), 0
    while running:
        due = int((time.monotonic() - begun) * work.events_per_s)
        for number in range(count, min(due, count + 200)):
            # Bytes that the kernel has are safe from kill -9, as those of the spool are.
            for event_id in _emit(emit, work.tenant, draw, number):
                note(journal, event_id.encode() + b"\n")
            count += 1
        time.sleep(0.005)
    if work.timings:
        Path(work.timings).write_text(json.dumps([emits, writes]))


def _timed(call: Callable[..., Any], taken: Taken) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        waited = getrusage(RUSAGE_THREAD).ru_nvcsw
        begun = time.perf_counter_ns()
        returned = call(*arguments, **named)
        took = time.perf_counter_ns() - begun
        taken.append((took, getrusage(RUSAGE_THREAD).ru_nvcsw - waited))
        return returned

    return timed


def _emit(emit: Emit, tenant: str, draw: random.Random, number: int) -> Iterator[str]:
    """Emit one event, or a pair that belongs together; yield each id as soon as it is returned."""
    workflow = f"type-{draw.randrange(WORKFLOWS)}"
    confidence = draw.random()
    if number % 5 == 0:  # a pair that has to be joined
        common = {
            "tenant": tenant, "workflow_type": workflow,
            "workflow_id": f"{os.getpid()}-{number}", "task_id": "1",
        }  # fmt: skip
        guess = {"prediction": {"tool_id": "search", "speculated": True}}
        yield emit(event_type="speculation_start", confidence=confidence, data=guess, **common)
        tool = "search" if draw.random() < confidence else "cancel"
        yield emit(event_type="task_complete", tool_id=tool, **common)
        return
    judged = {"was_correct": draw.random() < confidence, "speculated": True}
    yield emit(
        event_type="task_complete",
        tenant=tenant,
        workflow_type=workflow,
        workflow_id=f"{os.getpid()}-{number}",
        user_id=f"user-{draw.randrange(5)}",
        confidence=confidence,
        data={"context": {"domain": f"d{draw.randrange(3)}"}, "prediction": judged},
    )


if __name__ == "__main__":
    main()
