"""The short way of plain events against the long way of any: the same commits, to the byte.

The long way applies record by record and event by event, and every context learns at once; the
short way is what the agent runs. Both are given the same mixtures, cut at the same places.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any
from unittest.mock import patch

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.compiling import load
from headstart.contexts import context_paths
from headstart.frames import encode_frame
from learners.policy import Joint, Separate
from learners.registry import POLICIES
from processing import partition as partition_module
from processing import records as records_module
from processing import stretches as stretches_module
from processing.machine_code import machine_code
from processing.partition import Commit, Partition
from processing.placement import owner
from processing.records import Headers, RecordBatch
from processing.residence import HOUR_MS
from processing.rules import Rules, Weights
from processing.spools import SPOOL_LIFE_MS
from topics.controls import CONTROL_HEADER, Choice, Reset, Seed, Seeded, Weighing
from topics.letters import ORIGIN_HEADER

NOW = 1_760_000_000_000
EPOCH = 4
PARTITIONS = 2
Record = tuple[bytes | None, Headers]
KEYS = [
    (tenant, name)
    for tenant in ("a", "b")
    for name in ("refund", "report", "joined", "answer", "plan")
    if owner(tenant, name, PARTITIONS) == 0
]
"""Whose events belong to the partition that is looked at."""
POLICIES_TRIED = ("ema", "td", "sliding", "gradient", "hedge", "hops", "histogram", "meta", "fixed")


class LongWay(Partition):
    """The same partition without the short way."""

    def _stretch(self, _batch: RecordBatch, _begin: int) -> None:
        return None

    def _run(self, batch: RecordBatch, begin: int) -> tuple[int, int]:
        self._record(batch, begin, batch.offsets[begin])
        return begin + 1, 0

    def _take(self, *args: Any) -> None:
        super()._take(*args)
        self._contexts.settle()


@pytest.fixture(scope="module")
def compiled() -> Any:
    """The compiled scanner, as a worker has it."""
    assert load()
    return machine_code()


class Counted(Partition):
    """Counts the events that take the long way."""

    long = 0

    def _take(self, *args: Any) -> None:
        self.long += 1
        super()._take(*args)


class Mixture:
    """Draws records: mostly plain completions of a few contexts, and a little of anything else."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.clock = NOW - 2 * SPOOL_LIFE_MS
        self.odd = self.draw.choice([0.0, 0.02, 0.1, 0.5])
        self.digits = self.draw.choice([3, 3, 17])
        self.positions: Counter[tuple[str, str]] = Counter()

    def record(self) -> Record:
        draw = self.draw
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
        said = {"id": draw.choice("ab"), "at": NOW - draw.randrange(3)}
        pattern = draw.choice(["*", "domain=*", "workflow_type=refund", "user_id=u1"])
        kind = draw.choice(["choice", "choice", "reset", "seed", "weigh", "weigh"])
        if kind == "choice":
            learner = draw.choice([None, "ema", "td", "hops", "hops:alarm=2", "ema:alpha=0.5"])
            return Choice(**said, pattern=pattern, learner=learner)
        if kind == "reset":
            return Reset(**said, pattern=pattern, tenant="a")
        tenant, name = draw.choice(KEYS)
        if kind == "weigh":
            levels = draw.choice([{"domain": "x", "user_id": "u1"}, {"user_id": "u1"}])
            path = context_paths(name, levels.get, ("domain", "user_id"))[-1]
            until = self.clock + draw.choice([0, 30, HOUR_MS, 3 * HOUR_MS])
            return Weighing(**said, tenant=tenant, path=path, every=draw.randrange(1, 4),
                            until=until)  # fmt: skip
        (path,) = context_paths(name, {}.get, ())
        policy = POLICIES["td"]
        seeded = Seeded("td", policy.version, policy.initial(), 9, path, 4, 2)
        return Seed(**said, tenant=tenant, place=0, contexts=(seeded,))

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
    """Return a log, cut somehow, with holes between some offsets."""
    mixture, offset, made = Mixture(seed), 0, []
    draw = mixture.draw
    while size > 0:
        records = [mixture.record() for _ in range(min(size, draw.choice([1, 3, 17, 60])))]
        size -= len(records)
        offsets = []
        for _record in records:
            offset += draw.choice([1, 1, 1, 3])
            offsets.append(offset)
        headers = {at: said for at, (_, said) in zip(offsets, records, strict=True) if said}
        times = [NOW - draw.choice([0, 0, 1]) for _ in records]
        made.append(
            RecordBatch("t", 0, offsets[0], offset + 1, offsets, times, [b"k"] * len(records),
                        [value for value, _ in records], headers)
        )  # fmt: skip
    return made


def rules_of(seed: int, policy: str) -> Rules:
    draw = random.Random(seed)
    return Rules(
        POLICIES[policy],
        draw.choice([(), ("user_id",), ("domain", "user_id")]),
        idle_ms=draw.choice([HOUR_MS, 30 * 86_400_000]),
        most_contexts=draw.choice([4, 100_000]),
        weights=draw.choice([Weights(), Weights(), Weights(success=0.5)]),
        feedback_weight=draw.choice([0, 1, 2]),
    )


def commits(
    kind: type[Partition],
    log: Sequence[RecordBatch],
    rules: Rules,
    restarts: int = 0,
    *,
    ahead: bool = False,
) -> tuple[list[Commit], Partition]:
    """Apply a log batch by batch; take the partition up anew after every `restarts` commits."""
    table: dict[bytes, bytes] = {}
    core, found = kind(0, PARTITIONS, EPOCH, rules, table.get), list[Commit]()
    for batch in log:
        position = 0
        if ahead:
            look_ahead(core, batch)
        while position < len(batch):
            position = core.apply(batch, position)
            found.append(core.commit())
            table.update(found[-1].rows)
            if restarts and len(found) % restarts == 0:
                core = kind(0, PARTITIONS, EPOCH, rules, table.get)
                core.restore(list(table.items()))
    return found, core


def look_ahead(core: Partition, batch: RecordBatch) -> None:
    """Scan a batch before it is applied, as another thread would have done by then."""
    if (scan := core.look_ahead(batch)) is not None:
        batch.ahead = Future()
        batch.ahead.set_result(scan())


def the_long_way(log: Sequence[RecordBatch], rules: Rules, restarts: int) -> list[Commit]:
    """Apply a log event by event, every context learning at once."""
    with pytest.MonkeyPatch.context() as patching:
        for policy in POLICIES.values():
            if isinstance(policy, Separate):
                patching.setattr(type(policy), "columns", False)
                patching.setattr(type(policy), "course", Separate.course)
            if isinstance(policy, Joint):
                patching.setattr(type(policy), "learn_run", Joint.learn_run)
        return commits(LongWay, log, rules, restarts)[0]


@pytest.mark.parametrize("policy", POLICIES_TRIED)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**9),
    run=st.sampled_from([1, 2, 5, 128]),
    full=st.sampled_from([0, 3, 40, 10_000]),
    restarts=st.sampled_from([0, 0, 2]),
)
def test_the_short_way_gives_the_commits_of_the_long_way(
    policy: str, seed: int, run: int, full: int, restarts: int
) -> None:
    log, rules = batches(seed, 100), rules_of(seed, policy)
    with (
        patch.object(stretches_module, "machine_code", lambda: None),
        patch.object(records_module, "RUN", run),
        patch.object(partition_module, "COMMIT_BYTES", full * 400),
    ):
        short, _core = commits(Partition, log, rules, restarts)
        assert short == the_long_way(log, rules, restarts)


@pytest.mark.parametrize("policy", POLICIES_TRIED)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**9),
    most=st.sampled_from([1, 7, 4096]),
    room=st.sampled_from([0, 4_000, 2_000_000]),
    restarts=st.sampled_from([0, 0, 2]),
    ahead=st.booleans(),
)
def test_stretches_give_the_commits_of_the_long_way(
    compiled: Any, policy: str, seed: int, most: int, room: int, restarts: int, ahead: bool
) -> None:
    log, rules = batches(seed, 100), rules_of(seed, policy)
    with (
        patch.object(stretches_module, "machine_code", lambda: compiled),
        patch.object(stretches_module, "LEAST_BYTES", 1),
        patch.object(stretches_module, "LEAST", 1),
        patch.object(stretches_module, "LEAST_EACH", 0),
        patch.object(stretches_module, "MOST", most),
        patch.object(stretches_module, "MOST_BYTES", room),
        patch.object(records_module, "RUN", 2),
    ):
        short, _core = commits(Partition, log, rules, restarts, ahead=ahead)
        assert short == the_long_way(log, rules, restarts)


def test_what_was_looked_at_ahead_is_not_looked_at_again(compiled: Any) -> None:
    class Looked:
        def __init__(self, *args: Any) -> None:
            raise AssertionError("scanned again")

    batch, rules = plain_batch(1, 0.0), Rules(POLICIES["ema"])
    with (
        patch.object(stretches_module, "machine_code", lambda: compiled),
        patch.object(stretches_module, "LEAST_BYTES", 1),
        patch.object(stretches_module, "LEAST", 1),
        patch.object(stretches_module, "LEAST_EACH", 0),
        patch.object(records_module, "RUN", 2),
    ):
        core = Stretched(0, PARTITIONS, EPOCH, rules, lambda _key: None)
        look_ahead(core, batch)
        assert batch.ahead is not None
        with patch.object(stretches_module, "Scan", Looked):
            core.apply(batch)
        assert batch.ahead is None
    assert core.stretched > 0


@pytest.mark.parametrize("policy", ["ema", "hops"])
def test_however_a_log_is_cut_the_rows_are_the_same(policy: str) -> None:
    for seed in range(12):
        log, rules = batches(seed, 120), rules_of(seed, policy)
        tables = []
        for run in (1, 128):
            with patch.object(records_module, "RUN", run):
                found, _core = commits(Partition, log, rules)
            tables.append({key: row for commit in found for key, row in commit.rows})
        assert tables[0] == tables[1]


class Stretched(Partition):
    """Counts the events that are applied stretch by stretch, and the stretches."""

    stretched = stretches = 0

    def _stretch(self, batch: RecordBatch, begin: int) -> tuple[int, int] | None:
        done = super()._stretch(batch, begin)
        if done is not None:
            self.stretched += done[1]
            self.stretches += 1
        return done


def plain_batch(seed: int, odd: float) -> RecordBatch:
    mixture = Mixture(seed)
    mixture.odd = odd
    values = [orjson.dumps(mixture.event()) for _ in range(400)]
    return RecordBatch("t", 0, 0, 400, list(range(400)), [NOW] * 400, [None] * 400, [*values])


def test_plain_events_are_applied_by_stretches(compiled: Any) -> None:
    """Or else the law of stretches says nothing."""
    stretched = stretches = 0
    with (
        patch.object(stretches_module, "machine_code", lambda: compiled),
        patch.object(stretches_module, "LEAST_BYTES", 1),
        patch.object(stretches_module, "LEAST", 1),
        patch.object(stretches_module, "LEAST_EACH", 0),
        patch.object(records_module, "RUN", 2),
    ):
        for seed in range(5):
            _commits, core = commits(
                Stretched, [plain_batch(seed, 0.0)], Rules(POLICIES["ema"], ("user_id",))
            )
            assert isinstance(core, Stretched)
            stretched += core.stretched
            stretches += core.stretches
    assert stretched > 0.3 * 5 * 400
    assert stretched > 10 * stretches


def test_plain_events_take_the_short_way() -> None:
    """Or else the law above says nothing."""
    taken = long = 0
    for seed in range(5):
        with patch.object(stretches_module, "machine_code", lambda: None):
            _commits, core = commits(Counted, [plain_batch(seed, 0.02)], Rules(POLICIES["ema"]))
        assert isinstance(core, Counted)
        taken, long = taken + 400, long + core.long
    assert long < 0.6 * taken
