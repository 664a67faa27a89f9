"""The threshold agent's core by hand: what a commit holds and where it ends."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from headstart.events.frames import MAX_FRAME_BYTES, encode_frame
from learners.outcome import Outcome
from learners.registry import POLICIES
from processing import task as partition_module
from processing.config import DEEPEST, LearningConfig
from processing.contexts import cache as contexts_module
from processing.contexts.eviction import HOUR_MS
from processing.records import decode as decode_module
from processing.records.partitioner import partition_for
from processing.state.chunking import ROW_EXTRA
from processing.state.deduplication import SPOOL_LIFE_MS
from processing.state.expiry_budget import ENDING_BYTES
from processing.state.rows import (
    CONTEXT,
    PARTITION_KEY,
    SPOOL,
    TaskStateRow,
    context_key,
    context_of,
    decode_partition,
    start_key,
    version,
)
from processing.task import Checkpoint, PartitionTask
from tests.processing.building import (
    EMA,
    EPOCH,
    NOW,
    TD,
    Table,
    context,
    counts,
    event,
    fetch,
    judged,
    live,
    make,
    reasons,
    run,
    start,
    store,
)
from topics.catalogue import CHANGELOG


def row_bytes_of(commit: Checkpoint) -> int:
    """Return how much of a record batch a commit takes."""
    return sum(len(key) + len(row) + ROW_EXTRA for key, row in commit.rows)


def test_applied_records_are_skipped() -> None:
    records = [judged(), judged(correct=False), judged()]
    table: Table = {}
    partition = make(table)
    partition.apply(fetch(*records[:2]))
    store(table, partition.commit())
    before = dict(table)
    again = make(table)
    assert again.applied_offset == 1
    again.apply(fetch(*records[:2], b"not even JSON", offsets=[0, 1, 1]))
    commit = again.commit()
    assert (commit.events, commit.dead_letters, commit.thresholds) == (0, [], [])
    store(table, commit)
    assert table == before
    again.apply(fetch(*records))
    store(table, again.commit())
    assert counts(table).outcomes == 3


def test_the_end_of_a_commit_covers_the_holes_after_the_last_record() -> None:
    partition = make()
    batch = fetch(judged(), judged(), offsets=[3, 7], end=12)
    partition.apply(batch)
    assert partition.applied_offset == 7
    assert partition.commit().end == 12


def test_a_commit_is_cut_by_offset_where_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = context_key("acme", "workflow_type=refund/domain=retail/user_id=u0")
    row_bytes = len(longest) + contexts_module._ROW_BYTES
    monkeypatch.setattr(partition_module, "COMMIT_BYTES", 7 * row_bytes)
    records = [[judged(user_id=f"u{n}"), judged(user_id=f"v{n}")] for n in range(6)]
    batch = fetch(*records, offsets=[0, 1, 2, 3, 5, 8], end=11)
    partition, table, position, ends = make(), {}, 0, []
    while position < len(batch):
        position = partition.apply(batch, position)
        commit = partition.commit()
        ends.append(commit.end)
        assert commit.rows[-1][0] == PARTITION_KEY
        assert version(commit.rows[-1][1] or b"") == (EPOCH, partition.applied_offset)
        store(table, commit)
    # two contexts at every record, besides the two that all share: full at the third
    assert ends == [3, 11]
    assert counts(table).outcomes == 12


def test_one_long_name_cuts_no_later_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, frames = "%" * 256, [[judged(user_id=f"u{n}{m}") for n in range(9)] for m in range(9)]
    cuts = []
    for first in (judged(), judged(user_id=wide, workflow_type=wide)):
        partition, position = make(), 0
        partition.apply(fetch(first))
        partition.commit()
        batch = fetch(*frames, offsets=range(1, 10))
        monkeypatch.setattr(partition_module, "COMMIT_BYTES", 27 * 500)
        while position < len(batch):
            position = partition.apply(batch, position)
            cuts.append(partition.commit().end)
    assert cuts == [5, 9, 10] * 2


@pytest.mark.parametrize("most", [100_000, 2_500])
@pytest.mark.parametrize("policy", ["td", "hops"])
def test_the_worst_records_still_fit_one_record_batch_of_the_changelog(
    policy: str, most: int
) -> None:
    rows = Table()
    partition = PartitionTask(
        0, 1, EPOCH, LearningConfig(POLICIES[policy], most_contexts=most), rows.get
    )
    position = commits = 0
    wide = "%" * 252  # three bytes each in a path, one in the frame
    records = [
        [
            judged(
                workflow_type=f"{wide}{n:04}",
                user_id=f"{wide}{n:04}",
                data={"context": {"domain": f"{wide}{n:04}"}, "prediction": {"was_correct": True}},
            )
            for n in range(700 * record, 700 * record + 700)
        ]
        for record in range(6)
    ]
    batch = fetch(*records)
    assert all(value and 700_000 < len(value) <= MAX_FRAME_BYTES for value in batch.values)
    while position < len(batch):
        position = partition.apply(batch, position)
        commit = partition.commit()
        assert not commit.dead_letters
        written = sum(len(key) + len(row or b"") + 64 for key, row in commit.rows)
        assert written < CHANGELOG.max_record_bytes - 65_536
        store(rows, commit)
        commits += 1
    assert commits > 2
    assert (counts(rows).evicted > 0) == (most < 4_200)


@pytest.mark.parametrize("silence", [2 * HOUR_MS, SPOOL_LIFE_MS + HOUR_MS, 40 * 24 * HOUR_MS])
def test_however_much_ends_at_once_it_fits_one_record_batch(silence: int) -> None:
    """Executors were idle; the next event moves the clock on."""
    wide, many = "\N{GRINNING FACE}" * 240, 6_000
    partition, table, sizes, begin = make(), dict[bytes, bytes](), list[int](), NOW - silence
    ended = [
        start(task_id=f"{wide}{n}", workflow_id=f"{wide}{n}", user_id=f"{wide}{n}",
              timestamp=begin, origin=[f"spool-{n:050}", 0])
        for n in range(many)
    ] + [judged(user_id=f"{wide}{n}", timestamp=begin) for n in range(many)]  # fmt: skip
    after = [judged(timestamp=NOW + n) for n in range(24)]
    batch, position = fetch(*ended, *after), 0
    while position < len(batch):
        position = partition.apply(batch, position)
        commit = partition.commit()
        sizes.append(row_bytes_of(commit))
        store(table, commit)
    assert max(sizes) < CHANGELOG.max_record_bytes - 65_536
    assert counts(table).unresolved == many
    left = len([key for key in live(table) if key.startswith((CONTEXT, SPOOL))])
    assert left == {2 * HOUR_MS: 2 * many + 2, SPOOL_LIFE_MS + HOUR_MS: many + 2}.get(silence, 2)


def wide_frame(number: int, events: int) -> list[dict[str, Any]]:
    wide = "%" * 250
    return [
        judged(
            workflow_type=f"{wide}{n:06}",
            user_id=f"{wide}{n:06}",
            data={"context": {"domain": f"{wide}{n:06}"}, "prediction": {"was_correct": True}},
        )
        for n in range(1000 * number, 1000 * number + events)
    ]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_legal_frame_fits_behind_a_full_commit_and_with_expiries(
    policy: str,
) -> None:
    """The longest names, as many contexts as there can be, and the learner's own numbers."""
    rules = LearningConfig(POLICIES[policy], ("user_id", "agent_id", "session_id", "tool_id"))
    assert len(rules.levels) == DEEPEST
    made = [
        judged(workflow_type="%" * 256, user_id="%" * 253 + f"{n:03}", agent_id="%" * 138,
               session_id="s", tool_id="t", data={"prediction": {"was_correct": True}})
        for n in range(970)
    ]  # fmt: skip
    batch = fetch(made)
    assert 0.98 * MAX_FRAME_BYTES < len(batch.values[0]) <= MAX_FRAME_BYTES
    partition = PartitionTask(0, 1, EPOCH, rules, Table().get)
    partition.apply(batch)
    commit = partition.commit()
    assert len(commit.rows) > 4 * len(made)
    size = row_bytes_of(commit)
    assert size + partition_module.COMMIT_BYTES + ENDING_BYTES < CHANGELOG.max_record_bytes - 65_536


@pytest.mark.parametrize("plain", [0, 1, 2, 5])
def test_a_commit_is_cut_ahead_of_a_record_that_may_not_fit(
    monkeypatch: pytest.MonkeyPatch, plain: int
) -> None:
    """Also behind records that add nothing to it, and where it went on over several batches."""
    monkeypatch.setattr(partition_module, "WITH_NEXT_BYTES", 6_000_000)
    partition, table, sizes = make(), Table(), list[int]()

    def deliver() -> None:
        commit = partition.commit()
        sizes.append(row_bytes_of(commit))
        store(table, commit)

    frames: list[Any] = [wide_frame(n, 40) for n in range(16)]
    frames += [judged(workflow_type="%" * 250 + "000001")] * plain
    batches = [fetch(*frames, wide_frame(30, 740))]
    for begin in range(16 + plain + 1, 16 + plain + 4):
        batches.append(fetch(wide_frame(20 + begin, 740), offsets=[begin]))
    for batch in batches:
        position = 0
        while (position := partition.apply(batch, position)) < len(batch):
            deliver()
    deliver()
    assert max(sizes) < 4_500_000
    assert counts(table).outcomes == 16 * 40 + plain + 4 * 740


def test_a_level_longer_than_an_identifier_names_no_context() -> None:
    long = {"context": {"domain": "x" * 257}, "prediction": {"was_correct": True}}
    table, _commit = run(judged(data=long))
    paths = [context_of(key)[1] for key in table if key.startswith(b"c")]
    assert paths == ["workflow_type=refund"]


def test_a_commit_holds_each_row_once_and_the_partitions_row_last() -> None:
    _table, commit = run(
        start(task_id="a"), judged(), judged(), start(task_id="b"), start(task_id="a")
    )
    keys = [key for key, _row in commit.rows]
    assert len(set(keys)) == len(keys) == 5
    assert keys[-1] == PARTITION_KEY
    assert commit.events == 5


def test_a_row_carries_the_offset_of_its_last_change() -> None:
    table, _commit = run(judged(), judged(data={"prediction": {"was_correct": True}}), start())
    assert version(table[context_key("acme", "workflow_type=refund/domain=retail")]) == (EPOCH, 0)
    assert version(table[context_key("acme", "workflow_type=refund")]) == (EPOCH, 1)
    assert version(table[start_key("acme", "refund", "w1", "t1")]) == (EPOCH, 2)
    assert version(table[PARTITION_KEY]) == (EPOCH, 2)


def test_every_touched_context_is_served_and_only_what_moved_is_published() -> None:
    partition = make()
    partition.apply(fetch(judged(confidence=0.95)))
    first = partition.commit()
    assert [t.path for t in first.thresholds] == [
        "workflow_type=refund", "workflow_type=refund/domain=retail",
    ]  # fmt: skip
    assert first.moved == first.thresholds
    partition.apply(fetch(judged(confidence=0.1), offsets=[1]))
    second = partition.commit()
    assert [(t.outcomes, t.offset, t.epoch) for t in second.thresholds] == [(2, 1, EPOCH)] * 2
    assert second.moved == []
    assert partition.commit().thresholds == []


def test_served_thresholds_are_the_policys() -> None:
    table, commit = run(judged(correct=False, user_id="u7"))
    for threshold in commit.thresholds:
        learned = TD.thresholds(context(table, threshold.path).state)
        assert (threshold.speculate, threshold.suggest) == learned
        assert (threshold.tenant, threshold.workflow_type) == ("acme", "refund")
        assert (threshold.learner, threshold.at) == ("td", NOW)


def test_an_event_in_a_partition_that_its_key_does_not_belong_to_is_refused_as_it_came() -> None:
    flows = {partition_for("acme", f"flow-{n}", 4): f"flow-{n}" for n in range(50)}
    late = judged(workflow_type=flows[2], timestamp=NOW + 9, mine={"unknown": [1, "é"]})
    spaced = orjson.dumps(late).replace(b'"mine":', b'"mine" :  ')
    good = judged(workflow_type=flows[0])
    value = encode_frame([b"{}", orjson.dumps(good), spaced])
    partition = make(partitions=4)
    partition.apply(fetch(value))
    commit = partition.commit()
    assert [letter.value for letter in commit.dead_letters] == [b"{}", spaced]
    assert "belongs to partition 2" in reasons(commit)[1]
    assert {threshold.workflow_type for threshold in commit.thresholds} == {flows[0]}
    row = dict(commit.rows)[PARTITION_KEY]
    assert decode_partition(row or b"") == TaskStateRow(clock=NOW, outcomes=1)


def test_refused_events_of_a_frame_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, looked = [judged(workflow_type="elsewhere") for _ in range(40)], list[bytes]()
    split = decode_module.split_frame
    monkeypatch.setattr(
        decode_module, "split_frame", lambda value: looked.append(value) or split(value)
    )
    partition = make(partitions=7)
    assert partition_for("acme", "elsewhere", 7) != 0
    batch = fetch(frame, frame)
    partition.apply(batch)
    assert looked == batch.values
    found = [letter.value for letter in partition.commit().dead_letters]
    assert found == [orjson.dumps(each) for each in frame] * 2


def test_a_commit_is_cut_where_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "MOST_LETTERS", 5)
    partition, position, letters = make(), 0, []
    batch = fetch(*[b"[1,1,1]"] * 7)
    while position < len(batch):
        position = partition.apply(batch, position)
        letters.append(len(partition.commit().dead_letters))
    assert letters == [6, 6, 6, 3]


def test_a_bad_record_stops_nothing() -> None:
    records = [judged(), b"nonsense", None, [judged(), event(confidence=7)], judged()]
    table, commit = run(*records)
    assert counts(table).outcomes == 3
    assert commit.events == 3
    offsets = [dict(letter.headers)["__connect.errors.offset"] for letter in commit.dead_letters]
    assert offsets == [b"1", b"2", b"3"]
    assert {dict(letter.headers)["headstart.group"] for letter in commit.dead_letters} == {
        b"headstart-thresholds"
    }


def test_the_row_of_another_learner_is_reset_and_keeps_its_counts() -> None:
    done = [
        judged(data={"prediction": {"was_correct": True, "speculated": True}}) for _ in range(3)
    ]
    table, _commit = run(*done, policy=EMA)
    assert context(table).learner == "ema"
    run(*done[:1], table=table, policy=TD)
    row = context(table)
    assert (row.learner, row.policy_version) == ("td", TD.version)
    assert (row.outcomes, row.speculated, row.hits) == (4, 4, 4)
    assert row.state == TD.update(TD.initial(), Outcome(confidence=0.95, correct=True))
