"""From workflow types to a tenant's default: what is sent, when, and its effect."""

from __future__ import annotations

from typing import Any

import pytest

from learners.policy import Policy
from learners.registry import POLICIES, policy
from processing.config import LearningConfig
from processing.contexts.thresholds import is_published, threshold_from_row
from processing.control.default_merging import (
    MIN_OUTCOMES,
    RESEND_AFTER_S,
    DefaultMerger,
    EvidenceCollector,
)
from processing.control.learned_defaults import decode_default
from processing.state.rows import context_key, default_key
from processing.task import PartitionTask
from tests.processing.building import EPOCH, NOW, Table, context, fetch, judged
from tests.processing.control_records import record, run
from topics.control.messages import Default, DefaultEvidence, LearnedState

STATE = (0.77, 0.76, 0.6, 0.5)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def default(offset: int = 3, state: Any = STATE, **fields: Any) -> Any:
    learned = None if state is None else LearnedState("td", policy("td").version, state, 40)
    given = {"id": "d1", "at": NOW, "tenant": "acme", "epoch": EPOCH, "offset": offset, **fields}
    return record(Default(learned=learned, **given))


def test_an_unseen_workflow_type_begins_with_the_default() -> None:
    table, _ = run(judged(), default(), judged(), judged(workflow_type="other"))
    alone, _ = run(judged(workflow_type="other"))
    begun, plain = (context(each, "workflow_type=other").state for each in (table, alone))
    assert begun[0] != plain[0]
    other, _ = run(default(tenant="globex"), judged(workflow_type="other"))
    assert context(other, "workflow_type=other").state == plain  # never across tenants


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (2, 1, 2)])
def test_the_default_of_the_highest_place_holds_in_whatever_order(order: tuple[int, ...]) -> None:
    records = {1: default(1), 2: default(2, (0.9, 0.9, 0.6, 0.5))}
    table, _ = run(*(records[number] for number in order))
    assert threshold_from_row(default_key("acme"), table[default_key("acme")]).speculate == 0.9


def test_a_default_is_served_by_the_first_partition_and_taken_back() -> None:
    table, commit = run(default())
    (served,) = commit.moved
    assert (served.path, served.workflow_type, served.speculate) == ("default", "", 0.77)
    key = default_key("acme")
    assert [is_published(partition, key) for partition in (0, 1)] == [True, False]
    _, commit = run(default(4, None), table=table)
    assert [each.deleted for each in commit.moved] == [True]


def test_a_default_of_another_layout_is_a_dead_letter() -> None:
    _, commit = run(default(state=(1.0,)))
    assert len(commit.dead_letters) == 1


def learned_by(
    learner: Policy, *types: str, outcomes: int = MIN_OUTCOMES
) -> list[tuple[bytes, bytes]]:
    rows: Table = {}
    core = PartitionTask(0, 1, EPOCH, LearningConfig(learner), rows.get)
    core.apply(fetch(*(judged(workflow_type=each) for _ in range(outcomes) for each in types)))
    rows.update(core.commit().rows)
    return list(rows.items())


def test_evidence_is_sent_once_and_again_when_it_moved() -> None:
    clock = Clock()
    known = EvidenceCollector(3, clock)
    known.note(learned_by(policy("td"), "refund", "order"))
    (evidence,) = known.due(NOW)
    assert (evidence.partition, {each.path for each in evidence.known}) == (
        3, {"workflow_type=refund", "workflow_type=order"},
    )  # fmt: skip
    assert known.due(NOW)  # it was not sent yet
    known.sent(evidence)
    clock.now += RESEND_AFTER_S
    assert not known.due(NOW)
    known.note(learned_by(policy("td"), "refund", outcomes=5 * MIN_OUTCOMES))
    assert len(known.due(NOW)) == 1


@pytest.mark.parametrize(
    "row",
    [
        (b"cacme", bytes(100)),
        (b"c\xff\x1fworkflow_type=refund", bytes(100)),
        (b"cacme\x1fworkflow_type=refund", bytes(17)),
        (b"cacme\x1fworkflow_type=refund", bytes(16) + b"\x7f" * 60),
    ],
)
def test_a_row_that_no_worker_wrote_does_no_harm(row: tuple[bytes, bytes]) -> None:
    known = EvidenceCollector(0, Clock())
    known.note([row, *learned_by(policy("td"), "order")])
    (evidence,) = known.due(NOW)
    assert [each.path for each in evidence.known] == ["workflow_type=order"]


def test_few_outcomes_are_no_evidence() -> None:
    known = EvidenceCollector(0, Clock())
    known.note(learned_by(policy("td"), "refund", outcomes=MIN_OUTCOMES - 1))
    assert known.due(NOW) == []


def test_a_deleted_type_is_sent_as_deleted() -> None:
    known = EvidenceCollector(0, Clock())
    known.note([(context_key("acme", "workflow_type=refund"), b"\0" * 16)])
    (evidence,) = known.due(NOW)
    assert evidence.known == ()


@pytest.mark.parametrize("learner", POLICIES.values(), ids=POLICIES)
def test_evidence_of_every_policy_makes_a_default_that_is_taken(learner: Policy) -> None:
    known, merger = EvidenceCollector(0, Clock()), DefaultMerger(learner, Clock())
    known.note(learned_by(learner, "refund", "order"))
    table: Table = {}
    for evidence in known.due(NOW):
        core = PartitionTask(0, 1, EPOCH, LearningConfig(learner), table.get)
        assert isinstance(evidence, DefaultEvidence)
        value, headers = record(evidence)
        batch = fetch(value)
        batch.headers[0] = headers
        core.apply(batch)
        table.update(core.commit().rows)
    merger.note(list(table.items()))
    (records,) = merger.due(NOW)
    _, commit = run(record(records))
    assert commit.dead_letters == []
    assert records.learned is not None
    assert records.learned.outcomes == 2 * MIN_OUTCOMES


def test_a_successor_completes_defaults_sent_to_some_partitions_only() -> None:
    learner = policy("td")
    known = EvidenceCollector(0, Clock())
    known.note(learned_by(learner, "refund", "order"))
    (evidence,) = known.due(NOW)
    rows, _ = run(record(evidence))
    killed, successor = DefaultMerger(learner, Clock()), DefaultMerger(learner, Clock())
    killed.note(list(rows.items()))
    successor.note(list(rows.items()))
    (first,), (second,) = killed.due(NOW), successor.due(NOW + 5)
    heard_both, heard_one = run(record(first), record(second))[0], run(record(second))[0]
    one, other = (decode_default(table[default_key("acme")]) for table in (heard_both, heard_one))
    assert first.id != second.id
    assert one.learned == other.learned == first.learned is not None
