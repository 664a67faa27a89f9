"""A rebuild in the log: the table it leads to, by any worker, and whatever is interrupted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.thresholds.checkpoint_writer import superseding_row
from agents.thresholds.rebuild import replacement_commits
from processing.config import LearningConfig
from processing.control.learner_assignments import choice_row
from processing.control.rebuild_state import KEY, KEYS, UNDERWAY, followup_in
from processing.rebuild import LogChanged, TableRebuild, digest_of, staged_parts
from processing.records.partitioner import partition_for
from processing.state.rows import (
    PARTITION_KEY,
    context_key,
    context_of,
    decode_context,
    deleted,
    encode_context,
    version,
    with_version,
)
from processing.task import PartitionTask
from replay.log.replayed_partition import EpochPartition, ReplayedPartition
from tests.processing.building import (
    EMA,
    EPOCH,
    NOW,
    TD,
    Table,
    event,
    fetch,
    judged,
    live,
    make,
    reasons,
    start,
)
from tests.processing.control_records import record
from topics.control.messages import (
    SIGNATURE_HEADER,
    DefaultEvidence,
    LearnerChoice,
    Rebuild,
    Staged,
    control_records,
    signature,
)

PLACE = EpochPartition(0, 1, EPOCH)
RULES = LearningConfig(TD)


def log(*records: Any) -> Any:
    """One fetch of events (as they are) and control records (made by `record`)."""
    batch = fetch(*(each[0] if isinstance(each, tuple) else each for each in records))
    for place, each in enumerate(records):
        if isinstance(each, tuple):
            batch.headers[place] = each[1]
    return batch


def follow(records: list[Any], rules: LearningConfig = RULES, **how: Any) -> ReplayedPartition:
    """Take a partition through a log, its rebuilds fed from the same log."""
    following = ReplayedPartition(PLACE, rules, how.pop("rows", {}), **how)
    if not records:
        return following
    for takeover in following.apply(log(*records)):
        fed(takeover, records)
    return following


def fed(takeover: TableRebuild, records: list[Any]) -> bool:
    """Give a takeover its part of a log; return whether it goes ahead."""
    part = log(*records)
    part.drop_before(takeover.log.start)
    part.drop_from(takeover.log.stop)
    takeover.gather(part)
    if not takeover.begin():
        return False
    takeover.apply(part)
    return True


def rebuilt(fresh: ReplayedPartition, at: int = NOW, **fields: Any) -> list[Any]:
    """Return the records that bring a fresh table into the log."""
    rows = [(key, row) for key, row in live(fresh.table).items() if key not in KEYS]
    parts = list(staged_parts(rows))
    message: dict[str, Any] = {
        "id": f"r{at}", "at": at, "epoch": EPOCH, "offset": fresh.applied_offset,
        "places": len(parts),
        "digest": digest_of(rows), "rules": RULES.digest, **fields,
    }  # fmt: skip
    staged = [Staged(message["id"], at, place, tuple(part)) for place, part in enumerate(parts)]
    return [record(each) for each in (*staged, Rebuild(**message))]


OPERATORS_KEY = b"operators"
SIGNED = LearningConfig(TD, operators_key=OPERATORS_KEY)
PARTITIONS = 2
HERE, THERE = (
    next(kind for kind in map(str, range(99)) if partition_for("acme", kind, PARTITIONS) == place)
    for place in range(PARTITIONS)
)
"""Workflow types of the first partition and of the second."""


def of_partition(place: int, rules: LearningConfig, *records: Any) -> ReplayedPartition:
    """Take one of two partitions through a log."""
    following = ReplayedPartition(EpochPartition(place, PARTITIONS, EPOCH), rules, {})
    for takeover in following.apply(log(*records)):
        fed(takeover, list(records))
    return following


def signed_rebuild(rows: list[tuple[bytes, bytes]], offset: int, place: int) -> list[Any]:
    """Return the signed records of a rebuild as this version sends them into a partition."""
    staged = Staged("r", NOW, 0, tuple(rows))
    message = Rebuild("r", NOW, EPOCH, offset, 1, digest_of(rows), SIGNED.digest)
    return [
        (made.value, made.headers)
        for each in (staged, message)
        for made in control_records(each, [place], OPERATORS_KEY)
    ]


def without_partition(sent: list[Any]) -> list[Any]:
    """Return the same records as earlier versions signed them."""
    found = []
    for value, headers in sent:
        message = msgspec.json.decode(value)
        del message["partition"]
        old = msgspec.json.encode(message)
        found.append((old, [*headers[:2], (SIGNATURE_HEADER, signature(old, OPERATORS_KEY))]))
    return found


def rows_of(place: int, kind: str) -> tuple[list[tuple[bytes, bytes]], int]:
    fresh = of_partition(place, SIGNED, judged(workflow_type=kind))
    return list(live(fresh.table).items()), fresh.applied_offset


@pytest.mark.parametrize("old", [False, True], ids=["with a partition", "without"])
def test_a_signed_rebuild_copied_into_another_partition_changes_nothing(old: bool) -> None:
    """A writer to the topic can copy it, byte for byte, without the key."""
    sent = signed_rebuild(*rows_of(1, THERE), 1)
    sent = without_partition(sent) if old else sent
    before = [judged(workflow_type=HERE)]
    found = of_partition(0, SIGNED, *before, *sent)
    assert content(found) == content(of_partition(0, SIGNED, *before))
    table = {**found.table}
    core = PartitionTask(0, PARTITIONS, EPOCH, SIGNED, table.get)
    core.apply(log(*before, *sent))
    if not old:
        assert all("partition 1" in reason for reason in reasons(core.commit()))
        assert core.pending_rebuild is None


def test_a_signed_rebuild_without_a_partition_and_without_contexts_is_refused() -> None:
    """Records that an earlier version signed do not name the partition to empty."""
    fresh = of_partition(1, SIGNED, event())
    rows = [(key, row) for key, row in live(fresh.table).items() if key == PARTITION_KEY]
    before = [judged(workflow_type=HERE)]
    sent = without_partition(signed_rebuild(rows, fresh.applied_offset, 1))
    found = of_partition(0, SIGNED, *before, *sent)
    assert content(found) == content(of_partition(0, SIGNED, *before))
    message = followup_in(found.table[KEY])
    assert message is not None
    assert "names no partition" in message.result


@pytest.mark.parametrize("old", [False, True], ids=["with a partition", "without"])
def test_a_signed_rebuild_of_its_own_partition_is_followed(old: bool) -> None:
    sent = signed_rebuild(*rows_of(1, THERE), 1)
    sent = without_partition(sent) if old else sent
    before = [judged(workflow_type=THERE)]
    found = of_partition(1, SIGNED, *before, *sent, *sent)
    message = followup_in(found.table[KEY])
    assert message is not None
    assert message.result == "done"
    assert content(found) == content(of_partition(1, SIGNED, *before))


def test_evidence_is_for_the_first_partition_only() -> None:
    message = DefaultEvidence("e", NOW, "acme", 1, EPOCH, 0, ())
    ((value, headers),) = [
        (each.value, each.headers) for each in control_records(message, [0], OPERATORS_KEY)
    ]
    assert of_partition(1, SIGNED, (value, headers)).table.keys() == {PARTITION_KEY}
    assert len(of_partition(0, SIGNED, (value, headers)).table) == 2


def content(following: ReplayedPartition) -> Table:
    """Return rows without the places that they are of, and without the rebuild's own."""
    return {key: with_version(row, 0, 0) for key, row in live(following.table).items()
            if key not in KEYS}  # fmt: skip


BEFORE = [
    start(),
    judged(user_id="alice"),
    judged(False, workflow_type="order"),
    start(task_id="t2"),
]
BETWEEN = [event(task_id="t1", tool_id="search"), judged(tenant="globex")]
AFTER = [event(task_id="t2", tool_id="cancel"), judged(user_id="alice")]


def test_a_rebuild_as_it_was_changes_nothing_but_versions() -> None:
    sent = rebuilt(follow(BEFORE))
    found = follow([*BEFORE, *BETWEEN, *sent])
    at = len(BEFORE) + len(BETWEEN) + len(sent) - 1
    assert {version(row) for row in live(found.table).values()} == {(EPOCH, at)}
    message = followup_in(found.table[KEY])
    assert message is not None
    assert message.result == "done"
    plain = follow([*BEFORE, *BETWEEN])
    assert content(found) == content(plain)
    assert content(follow([*BEFORE, *BETWEEN, *sent, *AFTER])) == content(
        follow([*BEFORE, *BETWEEN, *AFTER])
    )


def test_a_damaged_table_is_replaced_and_what_is_too_much_is_marked() -> None:
    sent = rebuilt(follow(BEFORE))
    damaged = dict(follow(BEFORE).table)
    wrong = follow([judged(tenant="nobody")]).table
    extra = context_key("nobody", "workflow_type=refund")
    damaged[extra] = wrong[extra]
    following = ReplayedPartition(PLACE, RULES, damaged)
    batch = log(*BEFORE, *BETWEEN, *sent)
    for takeover in following.apply(batch):
        part = log(*BEFORE, *BETWEEN, *sent)
        part.drop_before(takeover.log.start)
        part.drop_from(takeover.log.stop)
        takeover.gather(part)
        assert takeover.begin()
        takeover.apply(part)
    assert content(following) == content(follow([*BEFORE, *BETWEEN]))
    assert extra in following.table
    assert extra not in live(following.table)


def test_another_policy_is_learned_as_if_chosen_before_the_first_record() -> None:
    choice = LearnerChoice("c", NOW, "domain=retail", "ema", "acme")
    key, row = choice_row(choice, EPOCH)
    fresh = follow(BEFORE, rows={key: row}, skip_rebuild=True)
    found = follow([*BEFORE, *BETWEEN, *rebuilt(fresh, choice=choice), *AFTER])
    first = [record(choice), *BEFORE, *BETWEEN, *AFTER]
    right = follow(first)
    for each, raw in live(right.table).items():
        if each[:1] != b"c":
            continue
        now, then = decode_context(found.table[each]), decode_context(raw)
        learner = "ema" if "domain=retail" in each.decode() and b"acme" in each else "td"
        assert (now.learner, then.learner) == (learner, learner), context_of(each)
        assert now[2:] == then[2:]


def test_every_row_is_of_the_offset_that_made_it_and_of_one_there_is_but_one() -> None:
    # So of two owners' rows of a key the right one stays, whichever wrote last.
    made: list[tuple[bytes, bytes]] = []
    message: dict[tuple[bytes, tuple[int, int]], bytes] = {}
    following = ReplayedPartition(PLACE, RULES, {}, lambda commit: made.extend(commit.rows))
    sent = rebuilt(follow(BEFORE))
    refused = rebuilt(follow(BEFORE), NOW + 1, digest="0" * 64)
    records = [*BEFORE, *BETWEEN, *sent, *refused, *AFTER]
    for offset in range(len(records)):
        batch = log(*records)
        batch.drop_before(offset)
        batch.drop_from(offset + 1)
        for takeover in following.apply(batch):
            if fed(takeover, records):
                made.extend(takeover.replacing(list(following.table)))
        for key, row in made:
            assert key == PARTITION_KEY or version(row) == (EPOCH, offset), key
            assert message.setdefault((key, version(row)), row) == row, key
        made.clear()
    assert {key for key, _version in message} > KEYS


def test_of_two_the_later_counts_and_a_repetition_changes_nothing() -> None:
    early, late = rebuilt(follow(BEFORE), NOW), rebuilt(follow(BEFORE), NOW + 1)
    found = follow([*BEFORE, *late, *BETWEEN, *early, late[-1]])
    message = followup_in(found.table[KEY])
    assert message is not None
    assert message.rebuild.at == NOW + 1
    assert content(found) == content(follow([*BEFORE, *BETWEEN]))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"places": 2}, "1 of 2 records"),
        ({"digest": "0" * 64}, "not those that the rebuild names"),
        ({"offset": 5}, "1 of 1 records"),
    ],
)
def test_an_incomplete_rebuild_is_refused_and_the_table_stays(change: Any, why: str) -> None:
    sent = rebuilt(follow(BEFORE), **change)
    found = follow([*BEFORE, *sent, *BETWEEN])
    message = followup_in(found.table[KEY])
    assert message is not None
    assert why in message.result
    assert content(found) == content(follow([*BEFORE, *BETWEEN]))


CONTEXT = context_key("acme", "workflow_type=refund")


def _with(**fields: Any) -> tuple[bytes, bytes]:
    row = decode_context(follow(BEFORE).table[CONTEXT])
    return CONTEXT, encode_context(row._replace(**fields))


@pytest.mark.parametrize(
    "row",
    [
        (b"cacme", _with()[1]),
        (b"cacme\x1f", _with()[1]),
        (b"dacme", deleted(EPOCH, 0) + b"\xc0"),
        _with(gain=float("nan")),
        _with(cost=float("inf")),
        _with(state=(float("nan"),) * len(decode_context(_with()[1]).state)),
        _with(learner="no such policy"),
        (b"", b""),
        (PARTITION_KEY, b"12"),
        (PARTITION_KEY, deleted(EPOCH, 0) + b"\xc1"),
        (CONTEXT, deleted(EPOCH, 9) + bytes(8)),
        (CONTEXT, deleted(EPOCH, 0) + b"\xff" * 40),
        (CONTEXT[:1] + b"\xff" + CONTEXT[1:], deleted(EPOCH, 0) + bytes(60)),
        (b"s1", deleted(EPOCH, 0) + b"\xc1"),
        (b"o1", deleted(EPOCH, 0) + bytes(3)),
        (b"klearner", deleted(EPOCH, 0) + b"\xc1"),
        (b"d", deleted(EPOCH, 0) + b"\xc1"),
    ],
)
def test_unreadable_rows_are_refused_and_stop_no_partition(row: tuple[bytes, bytes]) -> None:
    before = follow(BEFORE)
    rows = [*live(before.table).items(), row]
    message = Rebuild("r", NOW, EPOCH, before.applied_offset, 1, digest_of(rows), RULES.digest)
    sent = [record(Staged("r", NOW, 0, tuple(rows))), record(message)]
    found = follow([*BEFORE, *sent, *BETWEEN])
    followup = followup_in(found.table[KEY])
    assert followup is not None
    assert "cannot be read" in followup.result
    assert content(found) == content(follow([*BEFORE, *BETWEEN]))


def test_a_staged_state_that_no_learner_reaches_is_refused() -> None:
    before = follow(BEFORE)
    rows = live(before.table)
    row = decode_context(rows[CONTEXT])
    rows[CONTEXT] = encode_context(row._replace(state=(-1.0, *row.state[1:])))
    staged = [*rows.items()]
    message = Rebuild("r", NOW, EPOCH, before.applied_offset, 1, digest_of(staged), RULES.digest)
    sent = [record(Staged("r", NOW, 0, tuple(staged))), record(message)]
    found = follow([*BEFORE, *sent, *BETWEEN])
    followup = followup_in(found.table[KEY])
    assert followup is not None
    assert "workflow_type=refund: state: is none of" in followup.result
    assert content(found) == content(follow([*BEFORE, *BETWEEN]))


def test_one_of_more_records_than_any_log_has_is_refused_at_once() -> None:
    sent = rebuilt(follow(BEFORE), places=2**63 - 1)
    followup = followup_in(follow([*BEFORE, *sent]).table[KEY])
    assert followup is not None
    assert "records of staged rows are not in the log" in followup.result


def test_an_invalid_choice_makes_it_a_dead_letter() -> None:
    """Or a worker that skips it would end there, again and again."""
    choice = LearnerChoice("c", NOW, "*", "no such policy")
    core = make({})
    batch = log(*BEFORE, *rebuilt(follow(BEFORE), choice=choice))
    assert core.apply(batch) == len(batch)
    assert core.pending_rebuild is None
    (reason,) = reasons(core.commit())
    assert "no such policy" in reason


def test_a_log_that_loses_records_while_it_is_read_replaces_nothing() -> None:
    records = [*BEFORE, *rebuilt(follow(BEFORE))]
    core = make({})
    core.apply(log(*records))
    assert core.pending_rebuild is not None
    takeover = TableRebuild(core.pending_rebuild, core.reached, 0, 1, EPOCH, RULES)
    takeover.gather(log(*records))
    assert takeover.begin()
    with pytest.raises(LogChanged):
        takeover.rows()


def test_one_made_by_other_rules_is_a_dead_letter() -> None:
    sent = rebuilt(follow(BEFORE), rules=LearningConfig(EMA).digest)
    core = make({})
    batch = log(*BEFORE, *sent)
    assert core.apply(batch) == len(batch)
    assert core.pending_rebuild is None
    (reason,) = reasons(core.commit())
    assert "settings" in reason


def test_a_skipped_rebuild_still_applies_its_choice() -> None:
    choice = LearnerChoice("c", NOW, "*", "ema")
    found = follow([*BEFORE, *rebuilt(follow(BEFORE), choice=choice), *AFTER], skip_rebuild=True)
    assert decode_context(found.table[context_key("acme", "workflow_type=refund")]).learner == "ema"
    assert content(found) == content(follow([*BEFORE, record(choice), *AFTER]))


def test_ended_after_any_commit_the_next_owner_comes_to_the_same_table() -> None:
    sent = rebuilt(follow(BEFORE))
    records = [*BEFORE, *BETWEEN, *sent]
    right = live(follow(records).table)
    table: Table = {}
    core = make(table)
    core.apply(log(*records))
    commit = core.commit()
    assert commit.end == core.reached == len(records) - 1  # the next owner publishes from there
    assert core.applied_offset < core.reached  # and meets it again
    table.update(commit.rows)
    done = 0
    while True:
        again = PartitionTask(0, 1, EPOCH, RULES, table.get)
        again.restore(list(table.items()))  # which finds no row ahead
        again.apply(log(*records))
        if again.pending_rebuild is None:
            break
        table.update(again.commit().rows)
        commits = list(_commits(again, records, table))
        assert len(commits) > 4
        assert [each.end for each in commits[:-1]] == [again.reached] * (len(commits) - 1)
        done += 1  # one commit more each time, then the process ends
        for each in commits[:done]:
            table.update(each.rows)
    assert done == len(commits)
    assert live(table) == right
    assert table[PARTITION_KEY] == right[PARTITION_KEY]


def test_a_late_writer_that_is_not_at_it_yet_does_not_take_it_for_gone() -> None:
    """Else it is marked as deleted at the rebuild's own offset, and cannot be continued."""
    core = make({})
    core.apply(log(*BEFORE, *rebuilt(follow(BEFORE))))
    rows = dict(core.commit().rows)
    ours = version(rows[PARTITION_KEY])
    assert version(rows[UNDERWAY]) == (EPOCH, core.reached) > ours
    assert superseding_row(None, rows[UNDERWAY], ours) is None


def _commits(core: PartitionTask, records: list[Any], table: Table) -> Any:
    assert core.pending_rebuild is not None
    takeover = TableRebuild(core.pending_rebuild, core.reached, 0, 1, EPOCH, RULES)
    part = log(*records)
    part.drop_before(takeover.log.start)
    part.drop_from(takeover.log.stop)
    takeover.gather(part)
    assert takeover.begin()
    takeover.apply(part)
    return replacement_commits(takeover.replacing(list(table)), 0, core.reached, 100)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["u", "v", None]), st.booleans()),
        min_size=1,
    ),
    st.integers(0, 30),
    st.integers(0, 30),
)
def test_wherever_it_was_staged_and_wherever_it_is_the_state_is_the_same(
    outcomes: list[tuple[str, str | None, bool]], first: int, second: int
) -> None:
    events = [judged(right, workflow_type=kind, **({"user_id": user} if user else {}))
              for kind, user, right in outcomes]  # fmt: skip
    staged, at = sorted((min(first, len(events)), min(second, len(events))))
    sent = rebuilt(follow(events[:staged]))
    assert content(follow([*events[:at], *sent, *events[at:]])) == content(follow(events))


@given(st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40)), max_size=40))
def test_parts_are_the_rows_in_order(rows: list[tuple[bytes, bytes]]) -> None:
    assert [row for part in staged_parts(rows) for row in part] == rows
    assert all(staged_parts(rows))
