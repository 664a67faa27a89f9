"""Which contexts stay: as in a plain model, however the rows are kept and restored."""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from processing.config import LearningConfig
from processing.contexts.eviction import HOUR_MS
from processing.state import expiry_budget as endings_module
from processing.state.rows import CONTEXT, context_of, decode_context, is_deleted
from processing.task import PartitionTask
from tests.processing.building import EPOCH, NOW, TD, Table, counts, fetch, judged, live

IDLE_MS = 3 * HOUR_MS
MOST = 5
RULES = LearningConfig(TD, idle_ms=IDLE_MS, most_contexts=MOST)

outcomes = st.lists(
    st.tuples(
        st.sampled_from(["acme", "globex"]),
        st.sampled_from(["u1", "u2", "u3", "u4", None]),
        st.sampled_from([0, 0, 1, HOUR_MS // 2, HOUR_MS, 2 * HOUR_MS, 4 * HOUR_MS]),
        st.booleans(),
    ),
    max_size=25,
)
Step = tuple[str, str | None, int, bool]


def events(steps: list[Step]) -> list[dict[str, Any]]:
    """Return completions whose times go on by the third part, some of them late."""
    made, clock = [], NOW - 200 * HOUR_MS
    for tenant, user, later, late in steps:
        clock += later
        at = clock - (HOUR_MS if late else 0)
        made.append(judged(tenant=tenant, user_id=user, timestamp=at))
    return made


def kept(log: list[dict[str, Any]], cuts: list[int]) -> Table:
    """Apply a log; die and restore the rows at every cut."""
    table: Table = {}
    places = sorted({0, len(log), *(cut for cut in cuts if cut < len(log))})
    for begin, end in itertools.pairwise(places):
        core = PartitionTask(0, 1, EPOCH, RULES, table.get)
        core.restore(list(table.items()))
        batch = fetch(*log[begin:end], offsets=range(begin, end))
        core.apply(batch)
        table.update(core.commit().rows)
    return table


def model(log: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    """Return outcomes by (tenant, path), plainly."""
    there: dict[tuple[str, str], tuple[int, int]] = {}
    clock = 0
    for event in log:
        if event["timestamp"] > clock:
            if event["timestamp"] // HOUR_MS != clock // HOUR_MS:
                oldest = event["timestamp"] // HOUR_MS * HOUR_MS - IDLE_MS
                there = {place: held for place, held in there.items() if held[0] >= oldest}
            clock = event["timestamp"]
        paths = ["workflow_type=refund", "workflow_type=refund/domain=retail"]
        if event["user_id"] is not None:
            paths.append(f"{paths[-1]}/user_id={event['user_id']}")
        for path in paths:
            at, count = there.get((event["tenant"], path), (0, 0))
            there[event["tenant"], path] = (max(at, event["timestamp"]), count + 1)
        mine = [place for place in there if place[0] == event["tenant"]]
        for place in sorted(mine, key=lambda p: (there[p][0], -len(p[1]), p))[: len(mine) - MOST]:
            if len(mine) > MOST:
                del there[place]
    return {place: count for place, (_at, count) in there.items()}


@given(outcomes, st.lists(st.integers(1, 24), max_size=6))
def test_those_stay_that_a_plain_model_keeps(steps: list[Step], cuts: list[int]) -> None:
    log = events(steps)
    table = kept(log, cuts)
    found = {
        tuple(key[1:].decode().split("\x1f")): decode_context(row).outcomes
        for key, row in live(table).items()
        if key.startswith(CONTEXT)
    }
    assert found == model(log)
    assert table == kept(log, [])


@given(outcomes, st.lists(st.integers(1, 24), max_size=6), st.sampled_from([1, 150]))
def test_where_few_can_go_at_once_it_is_the_same_ones(
    steps: list[Step], cuts: list[int], ending: int
) -> None:
    log = events(steps)
    with patch.object(endings_module, "ENDING_BYTES", ending):
        table = kept(log, cuts)
        assert table == kept(log, [])
    there = {context_of(key) for key in live(table) if key.startswith(CONTEXT)}
    assert there >= set(model(log))
    for tenant, path in there:
        above = path.rpartition("/")[0]
        assert not above or (tenant, above) in there


@given(outcomes)
def test_none_outlives_the_one_above_it(steps: list[Step]) -> None:
    paths = set(model(events(steps)))
    for tenant, path in paths:
        above = path.rpartition("/")[0]
        assert not above or (tenant, above) in paths


def test_evicted_contexts_are_counted_published_and_start_from_nothing() -> None:
    log = [judged(timestamp=NOW - 50 * HOUR_MS), judged(timestamp=NOW - 40 * HOUR_MS)]
    table: Table = {}
    core = PartitionTask(0, 1, EPOCH, RULES, table.get)
    core.restore([])
    core.apply(fetch(log[0]))
    table.update(core.commit().rows)
    core.apply(fetch({**log[1], "data": {"prediction": {"was_correct": True}}}, offsets=[1]))
    commit = core.commit()
    table.update(commit.rows)
    gone = [each.path for each in commit.thresholds if each.deleted]
    assert gone == ["workflow_type=refund/domain=retail"]
    assert [each.path for each in commit.moved if each.deleted] == gone
    assert counts(table).expired == 2
    assert sum(map(is_deleted, table.values())) == 1
    (left,) = [row for key, row in live(table).items() if key.startswith(CONTEXT)]
    assert decode_context(left).outcomes == 1
