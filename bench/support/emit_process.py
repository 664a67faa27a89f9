"""One executor process of `bench capture`: emits at a pace, times every call, prints one line.

`python -m bench.support.emit_process KIND KAFKA EVENTS THREADS PACE`: KIND is durable, memory, bare
or otel; PACE is busy (the process computes between two events) or idle (it sleeps, its caches go
cold).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import headstart

RATE = 1_000
"""Events a second, of all threads together."""
FIELDS: dict[str, Any] = {
    "event_type": "task_complete",
    "tenant": "bench",
    "workflow_type": "refund",
    "workflow_id": "run-000123",
    "task_id": "7",
    "user_id": "user-42",
    "tool_id": "search_orders",
    "success": True,
    "confidence": 0.8437,
    "data": {
        "context": {"domain": "retail", "complexity": 0.5},
        "query": "find the last three orders of the customer, and whether one can be refunded",
        "prediction": {"tool_id": "search_orders", "mode": "speculative", "was_correct": True},
        "result": {"execution_time_ms": 812.5, "gain_ms": 400.0, "cost_ms": 600.0},
    },
}  # about 600 bytes as it travels, with id, timestamp and origin

Emit = Callable[[], object]


def durable(kafka: str) -> tuple[Emit, Callable[[], None]]:
    """Return `emit()` to the spool, shipped by the host's shared process."""
    emitter = headstart.Emitter(kafka)
    return lambda: emitter.emit(FIELDS), lambda: emitter.close(120)


def memory(kafka: str) -> tuple[Emit, Callable[[], None]]:
    """Return `emit()` without a spool, sent by a thread of this process."""
    emitter = headstart.Emitter(kafka, durable=False)
    return lambda: emitter.emit(FIELDS), lambda: emitter.close(120)


def bare(_kafka: str) -> tuple[Emit, Callable[[], None]]:
    """Return json.dumps and one unbuffered write: the least that keeps an event."""
    origin = "0193f5e2-7c1a-7123-8abc-0123456789ab"
    event = {**FIELDS, "id": origin, "timestamp": 1_800_000_000_000, "origin": [origin, 1]}
    folder = TemporaryDirectory(prefix="headstart-bench-bare-")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    file = os.open(Path(folder.name) / "bare", flags, 0o600)
    return lambda: os.write(file, json.dumps(event).encode()), folder.cleanup


def otel(_kafka: str) -> tuple[Emit, Callable[[], None]]:
    """Return a span's end, with as many fields, through BatchSpanProcessor to nowhere."""
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):  # type: ignore[misc,unused-ignore]
        def export(self, spans: Any) -> Any:
            for span in spans:
                assert isinstance(span, ReadableSpan)
                span.to_json(indent=None)
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    tracer = provider.get_tracer("bench")
    flat = {key: value for key, value in FIELDS.items() if key != "data"}
    flat |= {key: str(value) for key, value in FIELDS["data"].items()}
    # The span is made before the clock starts: emit() is compared with its end alone.
    waiting = iter(lambda: tracer.start_span("task_complete", attributes=flat), None)
    spans = [next(waiting) for _ in range(int(sys.argv[3]))]
    return lambda: spans.pop().end(), provider.shutdown


def paced(emit: Emit, count: int, threads: int, *, busy: bool) -> list[int]:
    """Return the nanoseconds of each call, sorted; each thread keeps its share of the pace."""
    taken: list[int] = []

    def run() -> None:
        mine = []
        due = time.perf_counter()
        for _ in range(count // threads):
            due += threads / RATE
            while (left := due - time.perf_counter()) > 0:
                if not busy:
                    time.sleep(left)
            begun = time.perf_counter_ns()
            emit()
            mine.append(time.perf_counter_ns() - begun)
        taken.extend(mine)

    workers = [threading.Thread(target=run) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sorted(taken)


def main() -> None:
    """Run one kind, and print what its calls took."""
    kind, kafka, count, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    busy = sys.argv[5] == "busy"
    emit, end = {"durable": durable, "memory": memory, "bare": bare, "otel": otel}[kind](kafka)
    for _ in range(0 if kind == "otel" else 200):
        emit()
    taken = paced(emit, count, threads, busy=busy)
    end()
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
