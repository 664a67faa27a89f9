"""What a purge does to learned contexts, and the rule by which it covers events."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from processing.records.batch import RecordBatch
from processing.records.sink_lines import until_purge
from replay.purge.run import purge_parts, records_for
from tests.processing.building import NOW, Table, judged, reasons
from tests.processing.control_records import EVERY, RETAIL, record, run
from topics.control.messages import MAX_RUNS, Purge, decode_control, signature
from topics.control.purges import EventSubject, PartitionPurges, PlacedPurge

KEY = b"secret"


def purge(**fields: Any) -> Purge:
    return Purge(**{"id": "p1", "at": NOW, "tenant": "acme", **fields})


def of_user(user: str) -> bytes:
    return judged(user_id=user)


def paths(table: Table) -> set[str]:
    """The paths of contexts that are not deleted."""
    return {
        key.decode().partition("\x1f")[2]
        for key, row in table.items()
        if key[:1] == b"c" and len(row) > 16
    }


def test_contexts_of_the_user_are_deleted_and_others_keep_what_they_learned() -> None:
    events = [of_user("u1"), of_user("u2"), of_user("u2")]
    table, _ = run(*events)
    before = dict(table)
    table, commit = run(record(purge(user_id="u1")), table=table)
    assert paths(table) == {EVERY, RETAIL, f"{RETAIL}/user_id=u2"}
    assert all(table[key] == before[key] for key in table if key[:1] == b"c" and b"u1" not in key)
    assert [each.path for each in commit.thresholds if each.deleted] == [f"{RETAIL}/user_id=u1"]


def test_it_applies_once_and_later_outcomes_are_learned_from() -> None:
    first = record(purge(user_id="u1"))
    table, _ = run(of_user("u1"), first, of_user("u1"), first)
    assert f"{RETAIL}/user_id=u1" in paths(table)
    later = record(purge(user_id="u1", id="p2", at=NOW + 1))
    assert f"{RETAIL}/user_id=u1" not in paths(run(later, table=table)[0])


@pytest.mark.parametrize("name", ["*", "u/1", "u=1", "100%"])
def test_a_name_is_a_name_and_no_pattern(name: str) -> None:
    table, _ = run(of_user("u1"), of_user(name), record(purge(user_id=name)))
    assert paths(table) == {EVERY, RETAIL, f"{RETAIL}/user_id=u1"}


def test_a_whole_tenant_is_forgotten() -> None:
    table, _ = run(of_user("u1"), record(purge(whole_tenant=True)))
    assert paths(table) == set()


def test_of_too_many_contexts_for_one_commit_each_record_deletes_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refused purge would leave all of them, and the command would not know."""
    users = [f"user-{n:02}" for n in range(12)]
    table, _ = run(*map(of_user, users))
    total = sum(len(key) + 64 for key in table if key[:1] == b"c")
    monkeypatch.setattr("processing.contexts.cache.FORGOTTEN_BYTES", total // 2)
    everything = purge(whole_tenant=True)
    left = []
    for part in purge_parts(everything, 3):
        table, commit = run(record(part), table=table)
        assert reasons(commit) == []
        left.append(paths(table))
    first, second, third = left
    assert {EVERY, RETAIL} <= first, "the finest go first"
    assert first > second
    assert 2 <= len(first) <= 8
    assert third == set()
    again, _ = run(record(everything), table=run(*map(of_user, users))[0])
    assert paths(again) == first, "which ones follows from the table"


def test_a_purge_has_as_many_records_as_its_contexts_need() -> None:
    assert [records_for([]), records_for([0, 5_000_000]), records_for([1, 6_000_000])] == [1, 1, 2]
    assert records_for([13_000_000, 1]) == 3
    named = purge(user_id="u1", runs=tuple(f"w{n}" for n in range(MAX_RUNS + 1)))
    parts = purge_parts(named, 2)
    assert [(len(each.runs), each.at) for each in parts] == [
        (MAX_RUNS, NOW), (1, NOW), (0, NOW + 1)
    ]  # fmt: skip
    assert purge_parts(purge(user_id="u1")) == [purge(user_id="u1")]


def test_another_tenant_is_not() -> None:
    table, _ = run(of_user("u1"), record(purge(tenant="other", whole_tenant=True)))
    assert len(paths(table)) == 3


def test_one_that_is_not_signed_is_refused_by_worker_and_sink() -> None:
    value, headers = record(purge(user_id="u1"))
    table, commit = run(of_user("u1"), (value, headers), key=KEY)
    assert f"{RETAIL}/user_id=u1" in paths(table)
    assert any("not signed" in reason for reason in reasons(commit))
    signed = (*headers, ("headstart.signature", signature(value, KEY)))
    for given, right in ((headers, False), (signed, True)):
        batch = RecordBatch("t", 0, 0, 2, [0, 1], [NOW] * 2, [b"k"] * 2, [b"[]", value], {1: given})
        found, placed = until_purge(batch, range(2), KEY)
        assert (found, placed is not None) == (range(2), right)
    run_up, placed = until_purge(batch, range(1), KEY)
    assert (run_up, placed) == (range(1), None)


@pytest.mark.parametrize(
    "fields",
    [{}, {"user_id": "u", "session_id": "s"}, {"user_id": ""}, {"session_id": "s", "runs": ["r"]}],
)
def test_one_without_exactly_one_subject_is_none(fields: dict[str, Any]) -> None:
    given = {"kind": "purge", "id": "p", "at": NOW, "tenant": "acme", **fields}
    with pytest.raises(ValueError, match="not a control record"):
        decode_control(msgspec.json.encode(given))


def covered(purge: Purge, offset: int, event: EventSubject, at: int) -> bool:
    """The rule in other words."""
    of_subject = {
        "user": event.user_id == purge.user_id
        or (not event.user_id and event.workflow_id in purge.runs),
        "session": event.session_id == purge.session_id,
        "workflow": event.workflow_id == purge.workflow_id,
        "tenant": True,
    }
    kind = (
        "user" if purge.user_id else "session" if purge.session_id
        else "workflow" if purge.workflow_id else "tenant"
    )  # fmt: skip
    early = at < offset or event.timestamp <= purge.at
    return purge.tenant == event.tenant and early and of_subject[kind]


def test_the_rule_equals_its_description_on_random_events() -> None:
    draw, hits = random.Random(3), 0
    for _ in range(2_000):
        names: list[str | None] = ["a", "b", None]
        some = [
            PlacedPurge(
                Purge("p", draw.randrange(10), draw.choice("tv"), **dict([draw.choice([
                    ("user_id", draw.choice("ab")), ("session_id", draw.choice("ab")),
                    ("workflow_id", draw.choice("ab")), ("whole_tenant", True),
                ])])),
                draw.randrange(-1, 10),
            )
            for _ in range(draw.randrange(4))
        ]  # fmt: skip
        some = [
            each._replace(purge=msgspec.structs.replace(each.purge, runs=("a",)))
            if each.purge.user_id and draw.random() < 0.5
            else each
            for each in some
        ]
        event = EventSubject(
            draw.choice("tv"), draw.choice("ab"), draw.randrange(10), draw.choice(names),
            draw.choice(names),
        )  # fmt: skip
        offset = draw.randrange(10)
        expected = any(covered(each.purge, each.offset, event, offset) for each in some)
        assert PartitionPurges(some).covers(event, offset) is expected
        hits += expected
    assert 200 < hits < 1_800
