"""The law of the threshold agent: its rows are a pure function of the log.

However the log is cut into fetches and commits, and however often the process dies between them
and reads records again, the rows are the same to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headstart.events.frames import encode_frame
from learners.registry import POLICIES
from processing import task as partition_module
from processing.config import LearningConfig
from processing.records.batch import RecordBatch
from processing.state import expiry_budget as endings_module
from processing.state.deduplication import SPOOL_LIFE_MS
from processing.state.open_predictions import START_LIFE_MS
from processing.state.rows import PARTITION_KEY, decode_context, decode_partition, version
from processing.task import Checkpoint, PartitionTask
from topics.control.messages import CONTROL_HEADER, Clock, Downweight, LearnerChoice

NOW = 1_760_000_000_000
EPOCH = 3
Table = dict[bytes, bytes]
Record = tuple[int, bytes | None]
"""(offset, value)"""

moments = st.builds(
    int.__add__,
    st.sampled_from(
        [0, 0, 1_000, START_LIFE_MS // 2, START_LIFE_MS, 2 * START_LIFE_MS, SPOOL_LIFE_MS]
    ),
    st.integers(0, 3),
)
tools = st.sampled_from([None, "search", "cancel"])
judgement = st.none() | st.booleans()
events = st.fixed_dictionaries(
    {
        "id": st.uuids().map(str),
        "event_type": st.sampled_from(
            ["speculation_start", "speculation_start", "task_complete", "task_complete",
             "hil_decision"]
        ),
        "tenant": st.sampled_from(["a", "b"]),
        "workflow_type": st.sampled_from(["refund", "a/b"]),
        "workflow_id": st.just("w1"),
        "timestamp": moments.map(lambda moment: NOW - SPOOL_LIFE_MS - 3 * START_LIFE_MS + moment),
        "task_id": st.sampled_from([None, "t1", "t1", "t2", "t3"]),
        "tool_id": tools,
        "confidence": st.none() | st.floats(0, 1) | st.floats(0.9, 1) | st.just(7),
    },
    optional={
        "user_id": st.sampled_from(["u1", "u2"]),
        "origin": st.tuples(st.sampled_from(["s1", "s2"]), st.integers(0, 4)),
        "data": st.fixed_dictionaries(
            {"prediction": st.fixed_dictionaries({"tool_id": tools, "was_correct": judgement})},
            optional={
                "context": st.fixed_dictionaries({"domain": st.sampled_from(["x", 1, None])}),
                "result": st.fixed_dictionaries({"gain_ms": st.floats(0, 100)}),
            },
        ),
    },
)  # fmt: skip
choices = st.builds(
    LearnerChoice,
    id=st.sampled_from(["a", "b"]),
    at=st.integers(NOW - 2, NOW),
    pattern=st.sampled_from(["*", "user_id=*", "workflow_type=refund"]),
    learner=st.sampled_from([None, "td", "ema:alpha=0.5", "hops", "nonsense"]),
    tenant=st.sampled_from([None, "a"]),
).map(msgspec.json.encode)
weighings = st.builds(
    Downweight,
    id=st.sampled_from(["a", "b"]),
    at=st.integers(NOW - 2, NOW),
    tenant=st.sampled_from(["a", "b"]),
    path=st.sampled_from(
        ["workflow_type=refund/domain=x/user_id=u1", "workflow_type=refund/user_id=u2"]
    ),
    every=st.integers(1, 3),
    until=moments.map(lambda moment: NOW - SPOOL_LIFE_MS - 2 * START_LIFE_MS + moment),
).map(msgspec.json.encode)
clocks = moments.map(
    lambda moment: msgspec.json.encode(Clock("c", NOW - SPOOL_LIFE_MS - START_LIFE_MS + moment))
)
values = (
    choices
    | clocks
    | weighings
    | events.map(orjson.dumps)
    | st.lists(events, max_size=4).map(lambda some: encode_frame(map(orjson.dumps, some)))
    | st.sampled_from([None, b"nonsense"])
)


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """A log with holes between some of its offsets."""
    offset, log = draw(st.integers(0, 3)), []
    for value in draw(st.lists(values, min_size=1, max_size=14)):
        log.append((offset, value))
        offset += draw(st.sampled_from([1, 1, 1, 2, 5]))
    return log


plans = st.lists(
    st.tuples(
        st.integers(1, 6),  # records of a fetch
        st.integers(0, 4),  # how many of them were delivered before
        st.sampled_from(
            ["go on", "go on", "die before the commit", "die after one", "die after the commit"]
        ),
    ),
    max_size=12,
)


def fetch(records: Sequence[Record], end: int) -> RecordBatch:
    offsets, contents = [offset for offset, _ in records], [value for _, value in records]
    nothing: list[Any] = [None] * len(records)
    headers = {
        at: ((CONTROL_HEADER, b"1"),)
        for at, value in records
        if any(word in (value or b"") for word in (b"pattern", b"until", b"clock"))
    }
    moments = [NOW] * len(records)
    return RecordBatch("t", 0, offsets[0], end, offsets, moments, nothing, contents, headers)


def make(table: Table, policy: str) -> PartitionTask:
    made = PartitionTask(0, 1, EPOCH, LearningConfig(POLICIES[policy]), table.get)
    made.restore(list(table.items()))
    return made


def store(table: Table, commit: Checkpoint) -> None:
    table.update(commit.rows)


def apply(
    partition: PartitionTask, batch: RecordBatch, write: Callable[[Checkpoint], None]
) -> None:
    position = 0
    while position < len(batch):
        position = partition.apply(batch, position)
        write(partition.commit())


def plainly(log: list[Record], policy: str) -> tuple[Table, list[Checkpoint]]:
    """Apply a log record by record, without accidents."""
    table: Table = {}
    partition, commits = make(table, policy), []
    for offset, value in log:
        apply(partition, fetch([(offset, value)], offset + 1), commits.append)
        store(table, commits[-1])
    return table, commits


def eventfully(log: list[Record], plan: Sequence[tuple[int, int, str]], policy: str) -> Table:
    """Apply a log as the plan has it, and to its end."""
    table: Table = {}
    partition, place = make(table, policy), 0
    for size, again, fate in [*plan, (len(log), 0, "go on")]:
        begin, upto = max(0, place - again), min(len(log), place + size)
        if begin >= upto:
            continue
        batch = fetch(log[begin:upto], log[upto - 1][0] + 1)
        if fate in {"die before the commit", "die after one"}:
            partition.apply(batch)
            if fate == "die after one":  # which need not be the only one of this fetch
                store(table, partition.commit())
        else:
            apply(partition, batch, lambda commit: store(table, commit))
            place = max(place, upto)
        if fate != "go on":
            partition = make(table, policy)
            done = partition.applied_offset
            place = sum(offset <= done for offset, _value in log)
    return table


@settings(max_examples=500)
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    log=logs(),
    plan=plans,
    ending=st.sampled_from([1, 150, 1_000_000]),
)
def test_the_rows_are_the_same_however_the_log_is_cut_and_workers_die(
    policy: str, log: list[Record], plan: list[tuple[int, int, str]], ending: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endings_module, "ENDING_BYTES", ending)
        assert eventfully(log, plan, policy) == plainly(log, policy)[0]


@given(log=logs(), plan=plans, full=st.integers(0, 8))
def test_the_rows_are_the_same_however_soon_a_commit_is_full(
    log: list[Record], plan: list[tuple[int, int, str]], full: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_module, "COMMIT_BYTES", full * 320)
        patch.setattr(partition_module, "WITH_NEXT_BYTES", full * 400)
        table = eventfully(log, plan, "td")
    assert table == plainly(log, "td")[0]


@given(log=logs())
def test_refusals_do_not_depend_on_the_cut(log: list[Record]) -> None:
    commits: list[Checkpoint] = []
    apply(make({}, "td"), fetch(log, log[-1][0] + 1), commits.append)
    letters = [letter for commit in plainly(log, "td")[1] for letter in commit.dead_letters]
    assert [letter for commit in commits for letter in commit.dead_letters] == letters


@given(log=logs())
def test_every_start_and_completion_is_accounted_for(log: list[Record]) -> None:
    table, commits = plainly(log, "td")
    row = decode_partition(table[PARTITION_KEY])
    taken = sum(commit.events for commit in commits)
    assert row.outcomes + row.unmatched + row.unresolved <= taken
    # every outcome is counted at the coarsest level of exactly one workflow type
    coarse = [key for key in table if key.startswith(b"c") and b"/" not in key]
    assert row.outcomes == sum(decode_context(table[key]).outcomes for key in coarse)
    assert version(table[PARTITION_KEY]) == (EPOCH, log[-1][0])


@given(log=logs())
def test_offsets_of_rows_never_go_back_nor_beyond_the_watermark(log: list[Record]) -> None:
    _table, commits = plainly(log, "td")
    seen: dict[bytes, int] = {}
    for commit, (offset, _value) in zip(commits, log, strict=True):
        for key, row in commit.rows:
            if row is not None:
                assert seen.get(key, -1) < version(row)[1] == offset
                seen[key] = offset
    ends = [commit.end for commit in commits]
    assert all(earlier < later for earlier, later in pairwise(ends))


def outcome(n: int, **fields: Any) -> bytes:
    return orjson.dumps(
        {
            "id": f"0199c82c-c000-7abc-8def-{n:012x}", "event_type": "task_complete",
            "tenant": "a", "workflow_type": "w", "workflow_id": "x", "timestamp": NOW,
            "confidence": 1.0, "data": {"prediction": {"was_correct": n % 3 > 0}}, **fields,
        }
    )  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=10)
@given(cuts=st.lists(st.integers(1, 130), max_size=6))
@example(cuts=[50, 50])
def test_long_windows_survive_restarts(policy: str, cuts: list[int]) -> None:
    """More than two windows of the EMA, with a restart at every cut."""
    log: list[Record] = [(n, outcome(n)) for n in range(130)]
    plan = [(size, 3, "die after the commit") for size in cuts]
    assert eventfully(log, plan, policy) == eventfully(log, [], policy)
