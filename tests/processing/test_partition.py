"""The threshold agent's core by hand: what counts, what is refused, what is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from headstart.contexts import DEFAULT_LEVELS
from headstart.events import new_id
from headstart.frames import MAX_FRAME_BYTES, encode_frame
from learners.outcome import Outcome
from learners.policy import Policy
from learners.registry import POLICIES
from processing import contexts as contexts_module
from processing import partition as partition_module
from processing.partition import START_LIFE_MS, Commit, Partition
from processing.placement import owner
from processing.records import RecordBatch
from processing.rows import (
    PARTITION_KEY,
    ContextRow,
    PartitionRow,
    context_key,
    context_of,
    decode_context,
    decode_partition,
    start_key,
    version,
)
from topics.catalogue import CHANGELOG

NOW = 1_760_000_000_000
EPOCH = 9
TD, EMA = POLICIES["td"], POLICIES["ema"]
Table = dict[bytes, bytes]


def event(kind: str = "task_complete", **fields: Any) -> dict[str, Any]:
    return {
        "id": new_id(NOW),
        "event_type": kind,
        "tenant": "acme",
        "workflow_type": "refund",
        "workflow_id": "w1",
        "timestamp": NOW,
        **fields,
    }


def start(confidence: float = 0.95, tool: str | None = "search", **fields: Any) -> dict[str, Any]:
    prediction = {"tool_id": tool, "speculated": True, **fields.pop("prediction", {})}
    data = {"context": {"domain": "retail"}, "prediction": prediction}
    return event(
        "speculation_start", confidence=confidence, **{"task_id": "t1", "data": data, **fields}
    )


def judged(correct: bool = True, confidence: float = 0.95, **fields: Any) -> dict[str, Any]:
    """Return a completion that counts at once."""
    data = {"context": {"domain": "retail"}, "prediction": {"was_correct": correct}}
    return event(confidence=confidence, **{"data": data, **fields})


def fetch(*records: Any, offsets: Sequence[int] | None = None, end: int | None = None) -> Any:
    """Return records (one event, a list of events as a frame, or bytes) as one fetch."""
    values = [
        record
        if isinstance(record, bytes) or record is None
        else encode_frame(map(orjson.dumps, record))
        if isinstance(record, list)
        else orjson.dumps(record)
        for record in records
    ]
    places = list(range(len(values)) if offsets is None else offsets)
    return RecordBatch(
        "headstart.events", 0, 0, places[-1] + 1 if end is None else end, places,
        [NOW] * len(values), [b"key"] * len(values), values,
    )  # fmt: skip


def make(table: Table | None = None, policy: Policy = TD, partitions: int = 1) -> Partition:
    rows = {} if table is None else table
    made = Partition(0, partitions, EPOCH, policy, DEFAULT_LEVELS, rows.get)
    made.restore(rows.items())
    return made


def store(table: Table, commit: Commit) -> None:
    for key, row in commit.rows:
        if row is None:
            table.pop(key, None)
        else:
            table[key] = row


def run(*records: Any, table: Table | None = None, policy: Policy = TD) -> tuple[Table, Commit]:
    """Apply records, as what follows in the log, to a restarted partition."""
    table = {} if table is None else table
    partition = make(table, policy)
    begin = partition.watermark + 1
    batch = fetch(*records, offsets=range(begin, begin + len(records)))
    assert partition.apply(batch) == len(records)
    commit = partition.commit()
    store(table, commit)
    return table, commit


def context(table: Table, path: str = "workflow_type=refund", tenant: str = "acme") -> ContextRow:
    return decode_context(table[context_key(tenant, path)])


def counts(table: Table) -> PartitionRow:
    return decode_partition(table[PARTITION_KEY])


def reasons(commit: Commit) -> list[str]:
    name = "__connect.errors.exception.message"
    return [dict(letter.headers)[name].decode() for letter in commit.dead_letters]


def test_a_completion_that_says_all_counts_at_once() -> None:
    table, commit = run(judged(correct=True, user_id="u7"))
    assert commit.dead_letters == []
    assert counts(table) == PartitionRow(clock=NOW, outcomes=1)
    for path in ("", "/domain=retail", "/domain=retail/user_id=u7"):
        row = context(table, f"workflow_type=refund{path}")
        learned = TD.update(TD.initial(), Outcome(confidence=0.95, correct=True))
        assert row == ContextRow(EPOCH, 0, NOW, 1, 0, 0, TD.version, "td", learned)
    assert len(table) == 4


def test_start_and_completion_are_joined() -> None:
    table, _commit = run(start(confidence=0.95, tool="search"))
    key = start_key("acme", "w1", "t1")
    assert version(table[key]) == (EPOCH, 0)
    assert counts(table).outcomes == 0
    run(event(task_id="t1", tool_id="search", user_id="u9"), table=table)
    assert key not in table
    row = context(table, "workflow_type=refund/domain=retail")  # the context of the start
    assert (row.outcomes, row.speculated, row.hits) == (1, 1, 1)
    assert row.state == TD.update(TD.initial(), Outcome(confidence=0.95, correct=True))
    assert not any(b"user_id" in key for key in table)


@pytest.mark.parametrize(
    ("guessed", "actual", "was_correct", "hit"),
    [
        ("search", "search", None, True),
        ("search", "cancel", None, False),
        ("search", "cancel", True, True),  # what is said counts, not what is compared
        ("search", "search", False, False),
        (None, None, True, True),
    ],
)
def test_correct_is_what_is_said_or_else_whether_the_tools_match(
    guessed: str | None, actual: str | None, was_correct: bool | None, hit: bool
) -> None:
    done = event(task_id="t1", tool_id=actual, data={"prediction": {"was_correct": was_correct}})
    table, commit = run(start(tool=guessed), done)
    assert commit.dead_letters == []
    assert context(table).hits == int(hit)
    assert context(table).outcomes == 1


def test_the_confidence_of_the_start_counts_where_the_completion_is_not_whole() -> None:
    table, _commit = run(start(confidence=0.3), event(task_id="t1", tool_id="search", confidence=1))
    assert context(table).outcomes == 1
    assert context(table).state == TD.initial()  # .3 is below the threshold: nothing is learned


def test_a_whole_completion_ends_its_start_too() -> None:
    table, commit = run(start(confidence=0.3), judged(task_id="t1", correct=False))
    assert counts(table) == PartitionRow(clock=NOW, outcomes=1)
    assert start_key("acme", "w1", "t1") not in table
    assert context(table).speculated == 0  # its own prediction counts, not that of the start
    assert commit.dead_letters == []


def test_without_both_tools_and_a_judgement_the_completion_is_refused() -> None:
    done = event(task_id="t1", mine=[1])
    table, commit = run(start(), done)
    assert reasons(commit)[0].startswith("data.prediction.was_correct: is missing")
    assert orjson.loads(commit.dead_letters[0].value) == done
    assert counts(table).outcomes == 0


def test_a_completion_without_a_start_is_counted_and_nothing_else() -> None:
    table, commit = run(event(task_id="t1", tool_id="search"), event())
    assert counts(table) == PartitionRow(clock=NOW, unmatched=2)
    assert (commit.dead_letters, set(table)) == ([], {PARTITION_KEY})


def test_two_completions_of_different_ids_are_two_outcomes() -> None:
    table, _commit = run(judged(task_id="t1"), judged(task_id="t1", timestamp=NOW - 5))
    assert counts(table).outcomes == context(table).outcomes == 2
    assert counts(table).clock == context(table).at == NOW  # the newest time of both


def test_a_start_is_joined_once() -> None:
    done = event(task_id="t1", tool_id="search")
    table, _commit = run(start(), done, {**done, "id": new_id()})
    assert counts(table) == PartitionRow(clock=NOW, outcomes=1, unmatched=1)


@pytest.mark.parametrize("other", [{"workflow_id": "w2"}, {"task_id": "t2"}, {"tenant": "b"}])
def test_starts_are_told_apart(other: dict[str, str]) -> None:
    table, _commit = run(start(), event(**{"task_id": "t1", "tool_id": "search", **other}))
    assert counts(table) == PartitionRow(clock=NOW, unmatched=1)


def test_a_second_start_of_a_task_replaces_the_first_which_is_unresolved() -> None:
    table, _commit = run(
        start(tool="search"), start(tool="cancel"), event(task_id="t1", tool_id="cancel")
    )
    assert counts(table) == PartitionRow(clock=NOW, outcomes=1, unresolved=1)
    assert context(table).hits == 1


@pytest.mark.parametrize(("waited", "unresolved"), [(START_LIFE_MS, 0), (START_LIFE_MS + 1, 1)])
def test_a_start_expires_after_an_hour_of_event_time(waited: int, unresolved: int) -> None:
    table: Table = {}
    begun = NOW - START_LIFE_MS
    run(start(timestamp=begun), table=table)
    run(event("hil_decision", timestamp=begun + waited), table=table)
    assert counts(table).unresolved == unresolved
    assert (start_key("acme", "w1", "t1") in table) == (not unresolved)
    run(event(task_id="t1", tool_id="search", timestamp=begun), table=table)
    assert counts(table).outcomes == 1 - unresolved
    assert counts(table).unmatched == unresolved
    assert counts(table).clock == begun + waited  # time does not go back


def test_a_start_replaced_by_a_later_one_expires_with_the_later_one() -> None:
    begun = NOW - START_LIFE_MS
    both = [start(timestamp=begun), start(timestamp=begun + 500)]
    table, _commit = run(*both, event(timestamp=begun + 500 + START_LIFE_MS))
    assert start_key("acme", "w1", "t1") in table
    run(event(timestamp=begun + 501 + START_LIFE_MS), table=table)
    assert start_key("acme", "w1", "t1") not in table
    assert counts(table).unresolved == 2


@pytest.mark.parametrize("missing", ["task_id", "confidence"])
def test_a_start_that_cannot_be_joined_or_learned_from_is_refused(missing: str) -> None:
    opened = start()
    del opened[missing]
    table, commit = run(opened)
    assert reasons(commit)[0].startswith(f"{missing}: is missing")
    assert set(table) == {PARTITION_KEY}


@pytest.mark.parametrize(
    "kind", ["ail_decision", "hil_decision", "workflow_complete", "user_feedback"]
)
def test_other_events_are_no_outcomes(kind: str) -> None:
    whole = judged()
    table, commit = run({**whole, "event_type": kind})
    assert (set(table), commit.dead_letters, commit.events) == ({PARTITION_KEY}, [], 1)
    assert counts(table).clock == NOW


def test_levels_of_an_event() -> None:
    odd = {"context": {"domain": True}, "prediction": {"was_correct": True}}
    table, _commit = run(
        judged(data=odd),
        judged(data={**odd, "context": {"domain": 3.5}}, user_id="a/b"),
        judged(data={**odd, "context": {"domain": ["x"]}}),
        judged(data={"prediction": {"was_correct": True}}, user_id="u"),
    )
    assert {key for key in table if key != PARTITION_KEY} == {
        context_key("acme", f"workflow_type=refund{path}")
        for path in ("", "/domain=true", "/domain=3.5", "/domain=3.5/user_id=a%2Fb", "/user_id=u")
    }


def test_what_was_applied_before_is_skipped() -> None:
    records = [judged(), judged(correct=False), judged()]
    table: Table = {}
    partition = make(table)
    partition.apply(fetch(*records[:2]))
    store(table, partition.commit())
    before = dict(table)
    again = make(table)
    assert again.watermark == 1
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
    assert partition.watermark == 7
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
        assert version(commit.rows[-1][1] or b"") == (EPOCH, partition.watermark)
        store(table, commit)
    # two contexts at every record, besides the two that all share: full at the third
    assert ends == [3, 11]
    assert counts(table).outcomes == 12


def test_the_worst_records_still_fit_one_record_batch_of_the_changelog() -> None:
    partition, position, commits = make(partitions=1), 0, 0
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
        for record in range(4)
    ]
    batch = fetch(*records)
    assert all(value and 700_000 < len(value) <= MAX_FRAME_BYTES for value in batch.values)
    while position < len(batch):
        position = partition.apply(batch, position)
        commit = partition.commit()
        assert not commit.dead_letters
        written = sum(len(key) + len(row or b"") + 64 for key, row in commit.rows)
        assert written < CHANGELOG.max_record_bytes - 65_536
        commits += 1
    assert commits > 1


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
    assert version(table[start_key("acme", "w1", "t1")]) == (EPOCH, 2)
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


def test_what_is_served_is_what_the_policy_says() -> None:
    table, commit = run(judged(correct=False, user_id="u7"))
    for threshold in commit.thresholds:
        learned = TD.thresholds(context(table, threshold.path).state)
        assert (threshold.speculate, threshold.suggest) == learned
        assert (threshold.tenant, threshold.workflow_type) == ("acme", "refund")
        assert (threshold.learner, threshold.at) == ("td", NOW)


def test_an_event_in_a_partition_that_its_key_does_not_belong_to_is_refused_as_it_came() -> None:
    flows = {owner("acme", f"flow-{n}", 4): f"flow-{n}" for n in range(50)}
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
    assert decode_partition(row or b"") == PartitionRow(clock=NOW, outcomes=1)


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


def test_the_row_of_another_learner_starts_anew_and_keeps_its_counts() -> None:
    done = [
        judged(data={"prediction": {"was_correct": True, "speculated": True}}) for _ in range(3)
    ]
    table, _commit = run(*done, policy=EMA)
    assert context(table).policy == "ema"
    run(*done[:1], table=table, policy=TD)
    row = context(table)
    assert (row.policy, row.policy_version) == ("td", TD.version)
    assert (row.outcomes, row.speculated, row.hits) == (4, 4, 4)
    assert row.state == TD.update(TD.initial(), Outcome(confidence=0.95, correct=True))
