"""Mixtures of events, in batches that are cut anywhere, and what applies them to a partition."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import orjson

from headstart.events.frames import encode_frame
from headstart.keys import context_paths
from learners import registry
from processing.apply import vectorized as stretches_module
from processing.apply.vectorized import VectorizedApplier
from processing.config import LearningConfig, Objectives
from processing.contexts import pending_updates as lessons_module
from processing.contexts.eviction import HOUR_MS
from processing.records import batch as records_module
from processing.records.batch import Headers, RecordBatch
from processing.records.partitioner import partition_for
from processing.state.deduplication import SPOOL_LIFE_MS
from processing.task import Checkpoint, PartitionTask
from topics.control.messages import (
    CONTROL_HEADER,
    Clock,
    Downweight,
    LearnerChoice,
    Reset,
    Seed,
    Seeded,
)
from topics.dead_letters.messages import ORIGIN_HEADER

NOW = 1_760_000_000_000
EPOCH = 4
PARTITIONS = 2
Record = tuple[bytes | None, Headers]
KEYS = [
    (tenant, name)
    for tenant in ("a", "b")
    for name in ("refund", "report", "joined", "answer", "plan")
    if partition_for(tenant, name, PARTITIONS) == 0
]
"""Whose events belong to the partition that is looked at."""


class Mixture:
    """Draws records: mostly plain completions of a few contexts, and a little of anything else."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.clock = NOW - 2 * SPOOL_LIFE_MS
        self.odd = self.draw.choice([0.0, 0.02, 0.1, 0.5])
        self.digits = self.draw.choice([3, 3, 17])
        self.clocked = self.draw.choice([0.0, 0.0, 0.01, 0.1])
        """How many of the records are clock records."""
        self.positions: Counter[tuple[str, str]] = Counter()

    def record(self) -> Record:
        draw = self.draw
        if draw.random() < self.clocked:
            at = self.clock + draw.choice([0, 0, 0, HOUR_MS, -2 * HOUR_MS, 30 * HOUR_MS])
            value = msgspec.json.encode(Clock("c", min(at, NOW)))
            return value, ((CONTROL_HEADER, b"1"),)
        if draw.random() < self.odd / 4:
            return draw.choice([None, b"", b"nonsense", b"[]", b"1"]), ()
        if draw.random() < self.odd / 4:
            return msgspec.json.encode(self.control()), ((CONTROL_HEADER, b"1"),)
        if draw.random() < 0.2:
            some = [orjson.dumps(self.event()) for _ in range(draw.randrange(6))]
            return encode_frame(some), ()
        headers: Headers = ()
        if draw.random() < self.odd / 8:
            headers = ((ORIGIN_HEADER, b"lane:%d" % draw.randrange(9)),)
        value = orjson.dumps(self.event())
        if draw.random() < self.odd / 4:
            value = draw.choice([value.replace(b'"', b' "'), value + b"\n", b"\n" + value])
        return value, headers

    def control(self) -> Any:
        draw = self.draw
        fields = {"id": draw.choice("ab"), "at": NOW - draw.randrange(3)}
        pattern = draw.choice(["*", "domain=*", "workflow_type=refund", "user_id=u1"])
        kind = draw.choice(["choice", "choice", "reset", "seed", "weigh", "weigh"])
        if kind == "choice":
            learner = draw.choice([None, "ema", "td", "hops", "hops:alarm=2", "ema:alpha=0.5"])
            return LearnerChoice(**fields, pattern=pattern, learner=learner)
        if kind == "reset":
            return Reset(**fields, pattern=pattern, tenant="a")
        tenant, name = draw.choice(KEYS)
        if kind == "weigh":
            levels = draw.choice([{"domain": "x", "user_id": "u1"}, {"user_id": "u1"}])
            path = context_paths(name, levels.get, ("domain", "user_id"))[-1]
            until = self.clock + draw.choice([0, 30, HOUR_MS, 3 * HOUR_MS])
            return Downweight(**fields, tenant=tenant, path=path, every=draw.randrange(1, 4),
                            until=until)  # fmt: skip
        (path,) = context_paths(name, {}.get, ())
        policy = registry.policy("td")
        seeded = Seeded("td", policy.version, policy.initial(), 9, path, 4, 2)
        return Seed(**fields, tenant=tenant, place=0, contexts=(seeded,))

    def event(self) -> dict[str, Any]:
        draw = self.draw
        jumps = [0, 0, 1, 7] if draw.random() > self.odd / 8 else [HOUR_MS, SPOOL_LIFE_MS // 2]
        self.clock = min(self.clock + draw.choice(jumps), NOW)
        odd = draw.random() < self.odd
        spool, (tenant, workflow_type) = draw.choice(["s1", "s2"]), draw.choice(KEYS)
        self.positions[tenant, spool] += 1
        position = self.positions[tenant, spool]
        again = draw.choice([1, 3]) if draw.random() < self.odd / 2 else 0
        event = {
            "id": f"0199c82c-c000-7abc-8def-{draw.getrandbits(48):012x}",
            "event_type": "task_complete",
            "tenant": tenant,
            "workflow_type": workflow_type,
            "workflow_id": "w",
            "timestamp": max(0, self.clock - draw.choice([0, 0, 0, 5, HOUR_MS])),
            "task_id": draw.choice([None, "t1", "t2"]),
            "user_id": draw.choice([None, "u1", "u2"]),
            "confidence": draw.choice([self.number(), 0.97, 1]),
            "data": {
                "context": {"domain": draw.choice(["x", "x", 1, True, None, "x" * 300])},
                "prediction": {
                    "was_correct": draw.random() < 0.6,
                    "speculated": draw.choice([None, True, False]),
                    "mode": draw.choice([None, "speculative", "suggestion", "explicit"]),
                    **draw.choice([{}, {}, {"calibrated": True}]),
                    **({"evidence": {"tries": 3}} if draw.random() < self.odd / 4 else {}),
                },
                "result": draw.choice([None, self.result(), self.result()]),
            },
            "origin": [spool, position - again if position > again else 0],
        }
        return self.oddly(event) if odd else event

    def number(self) -> float:
        return round(self.draw.random(), self.digits)

    def result(self) -> dict[str, Any]:
        draw = self.draw
        return {
            "gain_ms": draw.choice([None, 0, 400.0, self.number() * 1e3]),
            "cost_ms": draw.choice([None, 0, 600, self.number() * 1e3]),
            "execution_time_ms": draw.choice([None, 812.5, 1e13 if self.odd else 0.25]),
        }

    def oddly(self, event: dict[str, Any]) -> dict[str, Any]:
        draw = self.draw
        more: dict[str, Any] = draw.choice(
            [
                {"event_type": "speculation_start"},
                {"event_type": "speculation_start", "task_id": "t1"},
                {"event_type": "user_feedback", "data": {"accepted": draw.random() < 0.5}},
                {"event_type": "hil_decision"},
                {"confidence": None},
                {"confidence": 7},
                {"data": None},
                {"data": {"prediction": {"tool_id": "search"}}, "tool_id": "search"},
                {"data": {**event["data"], "result": {"gain_ms": 1e16}}},
                {"data": {**event["data"], "query": "a\nb \u0007 \u001f"}},
                {"mine": [[1], {"a": "\\u0000"}]},
                {"origin": None},
                {"origin": [f"spool-{draw.randrange(99)}", 0]},
                {"user_id": f"u{draw.randrange(99)}"},
                {"timestamp": NOW + 2 * HOUR_MS},
                {"tenant": f"t{draw.randrange(9)}"},
            ]
        )
        return {**event, **more}


def batches(seed: int, size: int) -> list[RecordBatch]:
    """Return a log, cut somehow, half of its batches plain, with holes between some offsets."""
    mixture, offset, made = Mixture(seed), 0, []
    draw, mixed = mixture.draw, (mixture.odd, mixture.digits)
    while size > 0:
        mixture.odd, mixture.digits = draw.choice([mixed, (0.0, 3)])
        records = [mixture.record() for _ in range(min(size, draw.choice([1, 3, 17, 60])))]
        size -= len(records)
        offsets = []
        for _record in records:
            offset += draw.choice([1, 1, 1, 3])
            offsets.append(offset)
        headers = {at: fields for at, (_, fields) in zip(offsets, records, strict=True) if fields}
        times = [NOW - draw.choice([0, 0, 1]) for _ in records]
        made.append(
            RecordBatch("t", 0, offsets[0], offset + 1, offsets, times, [b"k"] * len(records),
                        [value for value, _ in records], headers)
        )  # fmt: skip
    return made


def plain_batch(seed: int, odd: float) -> RecordBatch:
    """Return 400 events, each a record of its own, all plain but for a share of `odd`."""
    mixture = Mixture(seed)
    mixture.odd = odd
    values = [orjson.dumps(mixture.event()) for _ in range(400)]
    return RecordBatch("t", 0, 0, 400, list(range(400)), [NOW] * 400, [None] * 400, [*values])


def rules_of(seed: int, policy: str) -> LearningConfig:
    """Return rules under which one policy learns, the rest of them drawn."""
    draw = random.Random(seed)
    return LearningConfig(
        registry.policy(policy),
        draw.choice([(), ("user_id",), ("domain", "user_id")]),
        idle_ms=draw.choice([HOUR_MS, 30 * 86_400_000]),
        most_contexts=draw.choice([4, 100_000]),
        weights=draw.choice([Objectives(), Objectives(), Objectives(success=0.5)]),
        feedback_weight=draw.choice([0, 1, 2]),
    )


def commits(
    kind: type[PartitionTask],
    log: Sequence[RecordBatch],
    rules: LearningConfig,
    restarts: int = 0,
    *,
    ahead: bool = False,
) -> tuple[list[Checkpoint], PartitionTask]:
    """Apply a log batch by batch; restore the partition after every `restarts` commits."""
    table: dict[bytes, bytes] = {}
    core, found = kind(0, PARTITIONS, EPOCH, rules, table.get), list[Checkpoint]()
    for batch in log:
        position = 0
        if ahead:
            prefetch_scan(core, batch)
        while position < len(batch):
            position = core.apply(batch, position)
            found.append(core.commit())
            table.update(found[-1].rows)
            if restarts and len(found) % restarts == 0:
                core = kind(0, PARTITIONS, EPOCH, rules, table.get)
                core.restore(list(table.items()))
    return found, core


def prefetch_scan(core: PartitionTask, batch: RecordBatch) -> None:
    """Scan a batch before it is applied, as another thread would have done by then."""
    if (scan := core.prefetch_scan(batch)) is not None:
        batch.prefetched = Future()
        batch.prefetched.set_result(scan())


class Counted(VectorizedApplier):
    """Counts the events that are applied at once, and the runs of them."""

    events = runs = 0

    def apply(self, batch: RecordBatch, begin: int) -> tuple[int, int] | None:
        done = super().apply(batch, begin)
        if done is not None:
            self.events += done[1]
            self.runs += 1
        return done


class Stretched(PartitionTask):
    """A partition that counts the events that are applied at once."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._vectorized = self.counted = Counted(self.state, self._events)


@contextmanager
def stretches_of(compiled: Any) -> Iterator[None]:
    """Let stretches be tried however little they hold, with this compiled code; None: without."""
    with (
        patch.object(stretches_module, "kernels", lambda: compiled),
        patch.object(lessons_module, "kernels", lambda: compiled),
        patch.object(stretches_module, "MIN_SCAN_BYTES", 1),
        patch.object(stretches_module, "MIN_EVENTS", 1),
        patch.object(stretches_module, "MIN_EVENTS_PER_PATH", 0),
        patch.object(stretches_module, "SKIPPED_BATCHES", 1),
        patch.object(records_module, "RUN", 2),
    ):
        yield


def stretched(
    compiled: Any, logs: Sequence[Sequence[RecordBatch]], rules: LearningConfig
) -> tuple[float, float]:
    """Return the share of events that are applied stretch by stretch, and how many in each."""
    total = events = stretches = 0
    with stretches_of(compiled):
        for log in logs:
            found, core = commits(Stretched, log, rules)
            assert isinstance(core, Stretched)
            total += sum(commit.events for commit in found)
            events, stretches = events + core.counted.events, stretches + core.counted.runs
    return events / total, events / max(1, stretches)
