"""The threshold agent's core by hand: what counts as an outcome, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from headstart.events.schema import new_id
from learners.outcome import Outcome
from processing.state.open_predictions import START_LIFE_MS
from processing.state.rows import (
    PARTITION_KEY,
    ContextRow,
    TaskStateRow,
    context_key,
    decode_start,
    deleted,
    old_start_key,
    start_key,
    version,
)
from tests.processing.building import (
    EPOCH,
    NOW,
    TD,
    Table,
    context,
    counts,
    event,
    judged,
    live,
    reasons,
    run,
    start,
)
from tests.processing.mixtures import stretches_of


def test_a_completion_with_all_fields_counts_at_once() -> None:
    table, commit = run(judged(correct=True, user_id="u7"))
    assert commit.dead_letters == []
    assert counts(table) == TaskStateRow(clock=NOW, outcomes=1)
    for path in ("", "/domain=retail", "/domain=retail/user_id=u7"):
        row = context(table, f"workflow_type=refund{path}")
        learned = TD.update(TD.initial(), Outcome(confidence=0.95, correct=True))
        counted = (1, 0, 0, 950_000, 0, 0, 0, 0, 0, 0)
        assert row == ContextRow(EPOCH, 0, NOW, 1, 0, 0, TD.version, "td", learned, counts=counted)
    assert len(table) == 4


def test_start_and_completion_are_joined() -> None:
    table, _commit = run(start(confidence=0.95, tool="search"))
    key = start_key("acme", "refund", "w1", "t1")
    assert version(table[key]) == (EPOCH, 0)
    assert counts(table).outcomes == 0
    run(event(task_id="t1", tool_id="search", user_id="u9"), table=table)
    assert key not in live(table)
    row = context(table, "workflow_type=refund/domain=retail")  # the context of the start
    assert (row.outcomes, row.speculated, row.hits) == (1, 1, 1)
    assert row.state == TD.update(TD.initial(), Outcome(confidence=0.95, correct=True))
    assert not any(b"user_id" in key for key in live(table))


@pytest.mark.parametrize(
    ("guessed", "actual", "was_correct", "hit"),
    [
        ("search", "search", None, True),
        ("search", "cancel", None, False),
        ("search", "cancel", True, True),  # the declared outcome counts, not the comparison
        ("search", "search", False, False),
        (None, None, True, True),
    ],
)
def test_correct_is_as_declared_or_else_whether_the_tools_match(
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
    assert counts(table) == TaskStateRow(clock=NOW, outcomes=1)
    assert start_key("acme", "refund", "w1", "t1") not in live(table)
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
    assert counts(table) == TaskStateRow(clock=NOW, unmatched=2)
    assert (commit.dead_letters, set(table)) == ([], {PARTITION_KEY})


def test_two_completions_of_different_ids_are_two_outcomes() -> None:
    table, _commit = run(judged(task_id="t1"), judged(task_id="t1", timestamp=NOW - 5))
    assert counts(table).outcomes == context(table).outcomes == 2
    assert counts(table).clock == context(table).at == NOW  # the newest time of both


def test_a_start_is_joined_once() -> None:
    done = event(task_id="t1", tool_id="search")
    table, _commit = run(start(), done, {**done, "id": new_id()})
    assert counts(table) == TaskStateRow(clock=NOW, outcomes=1, unmatched=1)


@pytest.mark.parametrize(
    "other",
    [
        {"workflow_id": "w2"}, {"task_id": "t2"}, {"tenant": "b"}, {"workflow_type": "book"},
    ],
)  # fmt: skip
def test_starts_are_distinguished(other: dict[str, str]) -> None:
    table, _commit = run(start(), event(**{"task_id": "t1", "tool_id": "search", **other}))
    assert counts(table) == TaskStateRow(clock=NOW, unmatched=1)


def test_starts_of_two_workflow_types_do_not_collide() -> None:
    """One partition holds several types; of equal ids each has its own start."""
    other = {"workflow_type": "book"}
    table, _commit = run(
        start(tool="search"), start(tool="cancel", **other),
        event(task_id="t1", tool_id="search"), event(task_id="t1", tool_id="cancel", **other),
    )  # fmt: skip
    assert counts(table) == TaskStateRow(clock=NOW, outcomes=2)
    assert context(table).hits == context(table, "workflow_type=book").hits == 1


def of_before(table: Table) -> Table:
    """Return a table with its one open start as earlier versions wrote it."""
    key = start_key("acme", "refund", "w1", "t1")
    row = table.pop(key)
    before = msgspec.structs.astuple(decode_start(row))[:-1]
    table[old_start_key("acme", "w1", "t1")] = row[:16] + msgspec.msgpack.encode(before)
    return table


def test_a_start_of_an_earlier_version_is_joined() -> None:
    old = old_start_key("acme", "w1", "t1")
    table, _commit = run(start(user_id="u7"))
    run(event(task_id="t1", tool_id="search", user_id="u7"), table=of_before(table))
    assert counts(table) == TaskStateRow(clock=NOW, outcomes=1)
    assert table[old] == deleted(EPOCH, 1)  # the changelog has it deleted at its own key
    assert not [key for key in live(table) if key.startswith(b"s")]


def test_a_start_of_an_earlier_version_is_replaced_by_a_later_one() -> None:
    table, _commit = run(start(tool="search"))
    run(start(tool="cancel"), table=of_before(table))
    assert counts(table) == TaskStateRow(clock=NOW, unresolved=1)
    assert list(starts := {key for key in live(table) if key.startswith(b"s")}) == [
        start_key("acme", "refund", "w1", "t1")
    ], starts
    run(event(task_id="t1", tool_id="cancel"), table=table)
    assert counts(table) == TaskStateRow(clock=NOW, outcomes=1, unresolved=1)


def test_a_start_of_an_earlier_version_expires() -> None:
    table, _commit = run(start(timestamp=NOW - START_LIFE_MS - 1))
    run(event("hil_decision"), table=of_before(table))
    assert counts(table).unresolved == 1
    assert not [key for key in live(table) if key.startswith(b"s")]


def test_a_whole_completion_ends_a_start_of_an_earlier_version() -> None:
    """Also where a run of records is applied flat: its context is known, so it looks plain."""
    table, _commit = run(judged(), start())
    run(judged(), judged(task_id="t1"), table=of_before(table))
    assert counts(table) == TaskStateRow(clock=NOW, outcomes=3)
    assert not [key for key in live(table) if key.startswith(b"s")]


@pytest.mark.parametrize("before", [False, True])
def test_a_stretch_ends_the_open_starts_of_its_own_type(compiled: Any, before: bool) -> None:
    table, _commit = run(judged(), judged(workflow_type="book"), start())
    with stretches_of(compiled):
        if not before:
            others = [f"t{n}" for n in range(200)]
            run([judged(workflow_type="book", task_id=task) for task in others], table=table)
            assert start_key("acme", "refund", "w1", "t1") in live(table)
        own = [judged(task_id=f"t{n}") for n in range(200)]
        run(own, table=of_before(table) if before else table)
    assert counts(table) == TaskStateRow(clock=NOW, outcomes=202 if before else 402)
    assert not [key for key in live(table) if key.startswith(b"s")]


def test_a_completion_of_another_user_is_not_joined() -> None:
    """Two users' runs may have the same ids: what contradicts is unmatched, not a wrong guess."""
    table, _commit = run(
        start(user_id="u1"), event(task_id="t1", tool_id="other", user_id="u2"),
    )  # fmt: skip
    assert counts(table) == TaskStateRow(clock=NOW, unmatched=1)
    run(judged(task_id="t1", user_id="u2"), table=table)  # it counts, and ends no start of u1
    run(event(task_id="t1", tool_id="search", user_id="u1"), table=table)
    assert counts(table) == TaskStateRow(clock=NOW, outcomes=2, unmatched=1)


@pytest.mark.parametrize("users", [(None, "u1"), ("u1", None), ("u1", "u1")])
def test_users_that_do_not_contradict_are_joined(users: tuple[str | None, str | None]) -> None:
    table, _commit = run(
        start(user_id=users[0]), event(task_id="t1", tool_id="search", user_id=users[1])
    )
    assert counts(table) == TaskStateRow(clock=NOW, outcomes=1)


def test_a_second_start_of_a_task_replaces_the_first_which_is_unresolved() -> None:
    table, _commit = run(
        start(tool="search"), start(tool="cancel"), event(task_id="t1", tool_id="cancel")
    )
    assert counts(table) == TaskStateRow(clock=NOW, outcomes=1, unresolved=1)
    assert context(table).hits == 1


@pytest.mark.parametrize(("waited", "unresolved"), [(START_LIFE_MS, 0), (START_LIFE_MS + 1, 1)])
def test_a_start_expires_after_an_hour_of_event_time(waited: int, unresolved: int) -> None:
    table: Table = {}
    begun = NOW - START_LIFE_MS
    run(start(timestamp=begun), table=table)
    run(event("hil_decision", timestamp=begun + waited), table=table)
    assert counts(table).unresolved == unresolved
    assert (start_key("acme", "refund", "w1", "t1") in live(table)) == (not unresolved)
    run(event(task_id="t1", tool_id="search", timestamp=begun), table=table)
    assert counts(table).outcomes == 1 - unresolved
    assert counts(table).unmatched == unresolved
    assert counts(table).clock == begun + waited  # time does not go back


def test_a_start_replaced_by_a_later_one_expires_with_the_later_one() -> None:
    begun = NOW - START_LIFE_MS
    both = [start(timestamp=begun), start(timestamp=begun + 500)]
    table, _commit = run(*both, event(timestamp=begun + 500 + START_LIFE_MS))
    assert start_key("acme", "refund", "w1", "t1") in live(table)
    run(event(timestamp=begun + 501 + START_LIFE_MS), table=table)
    assert start_key("acme", "refund", "w1", "t1") not in live(table)
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
