"""One executor under fire: emits at a steady rate and notes every id whose `emit()` returned."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from headstart import Emitter

WORKFLOWS = 24


@dataclass(frozen=True)
class Work:
    """What an executor does; `journal` is the file of the ids."""

    kafka: str
    spool: str
    tenant: str
    journal: str
    events_per_s: float
    seed: int


def command(work: Work) -> list[str]:
    """Return the command line of an executor process."""
    return [sys.executable, "-m", "tests.faults.executor", json.dumps(asdict(work))]


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
    begun, count = time.monotonic(), 0
    while running:
        due = int((time.monotonic() - begun) * work.events_per_s)
        noted = [_emit(emitter, work.tenant, draw, count + n) for n in range(min(200, due - count))]
        count += len(noted)
        # Bytes that the kernel has are safe from kill -9, as those of the spool are.
        os.write(journal, "".join(noted).encode())
        time.sleep(0.005)


def _emit(emitter: Emitter, tenant: str, draw: random.Random, number: int) -> str:
    workflow = f"type-{draw.randrange(WORKFLOWS)}"
    confidence = draw.random()
    if number % 5 == 0:  # a pair that has to be joined
        common = {
            "tenant": tenant, "workflow_type": workflow,
            "workflow_id": f"{os.getpid()}-{number}", "task_id": "1",
        }  # fmt: skip
        guess = {"prediction": {"tool_id": "search", "speculated": True}}
        begun = emitter.emit(
            event_type="speculation_start", confidence=confidence, data=guess, **common
        )
        tool = "search" if draw.random() < confidence else "cancel"
        ended = emitter.emit(event_type="task_complete", tool_id=tool, **common)
        return f"{begun}\n{ended}\n"
    judged = {"was_correct": draw.random() < confidence, "speculated": True}
    one = emitter.emit(
        event_type="task_complete",
        tenant=tenant,
        workflow_type=workflow,
        workflow_id=f"{os.getpid()}-{number}",
        user_id=f"user-{draw.randrange(5)}",
        confidence=confidence,
        data={"context": {"domain": f"d{draw.randrange(3)}"}, "prediction": judged},
    )
    return f"{one}\n"


if __name__ == "__main__":
    main()
