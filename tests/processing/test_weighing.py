"""Downweighted users: what counts in the contexts above, until when; nothing is lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from processing.config import LearningConfig
from processing.contexts.eviction import HOUR_MS
from processing.task import PartitionTask
from tests.processing.building import EPOCH, NOW, TD, Table, context, fetch, judged, live, reasons
from tests.processing.control_records import EVERY, RETAIL, record, run
from topics.control.messages import Downweight

ANN, BEN = f"{RETAIL}/user_id=ann", f"{RETAIL}/user_id=ben"


def weigh(every: int = 3, path: str = ANN, **fields: Any) -> Any:
    given = {"id": "w1", "at": NOW, "tenant": "acme", "until": NOW + 1_000, **fields}
    return record(Downweight(path=path, every=every, **given))  # type: ignore[arg-type]


def by(user: str, right: bool = True, at: int = NOW, **fields: Any) -> dict[str, Any]:
    return judged(right, user_id=user, timestamp=at, **fields)


def states(table: Table, *paths: str) -> list[Any]:
    return [context(table, path).state for path in paths]


def test_one_in_so_many_counts_above_and_all_in_the_users_own_context() -> None:
    table, _ = run(weigh(), *[by("ann", right=False)] * 7)
    twice, _ = run(*[by("ann", right=False)] * 2)
    seven, _ = run(*[by("ann", right=False)] * 7)
    assert states(table, EVERY, RETAIL) == states(twice, EVERY, RETAIL)
    assert states(table, ANN) == states(seven, ANN)


def test_all_are_counted_and_others_teach_as_ever() -> None:
    alone, _ = run(*[by("ben")] * 3)
    table, _ = run(weigh(100), *[by("ann", right=False), by("ben")] * 3)
    assert states(table, EVERY, RETAIL, BEN) == states(alone, EVERY, RETAIL, BEN)
    assert [context(table, path).outcomes for path in (EVERY, RETAIL, ANN)] == [6, 6, 3]


def test_gain_and_cost_above_are_not_moved_either() -> None:
    dear = {"context": {"domain": "retail"}, "prediction": {"was_correct": True},
            "result": {"gain_ms": 1e9}}  # fmt: skip
    table, _ = run(by("ben", data={**dear, "result": {"gain_ms": 5.0}}), weigh(9))
    table, _ = run(by("ann", data=dear), table=table)
    assert [context(table, path).gain for path in (EVERY, RETAIL, ANN)] == [5.0, 5.0, 1e9]


def test_feedback_is_weighed_alike() -> None:
    wrong = by("ann", right=False)
    data = {"context": {"domain": "retail"}, "accepted": False}
    verdict = by("ann", event_type="user_feedback", data=data)
    table, _ = run(weigh(), *[wrong, verdict] * 3)
    twice, _ = run(wrong, verdict)
    six, _ = run(*[wrong, verdict] * 3)
    assert states(table, EVERY, RETAIL) == states(twice, EVERY, RETAIL)
    assert states(table, ANN) == states(six, ANN)
    assert context(table, EVERY).counts == context(six, EVERY).counts


def test_it_ends_by_event_time_and_is_taken_back_by_a_later_one() -> None:
    plain, _ = run(*[by("ann", at=NOW + 1_000)] * 2)
    ended, _ = run(weigh(), *[by("ann", at=NOW + 1_000)] * 2)
    lifted, _ = run(weigh(), weigh(1, at=NOW + 1), *[by("ann", at=NOW + 1_000)] * 2)
    for table in (ended, lifted):
        assert states(table, EVERY, ANN) == states(plain, EVERY, ANN)


def test_of_two_the_later_holds_and_a_repetition_changes_nothing() -> None:
    outcomes = [by("ann", right=False)] * 2
    once, _ = run(weigh(2, at=NOW), *outcomes, by("ann", right=False))
    again, _ = run(weigh(2, at=NOW), *outcomes, weigh(2, at=NOW), weigh(1, at=NOW - 1),
                   by("ann", right=False))  # fmt: skip
    assert states(again, EVERY, ANN) == states(once, EVERY, ANN)


def held(table: Table) -> list[bytes]:
    return [key for key in live(table) if key.startswith(b"kweigh")]


def test_nothing_is_kept_of_it_once_its_time_is_over() -> None:
    end = NOW + 1_000
    for weights in ([weigh()], [weigh(), weigh(1, at=NOW + 1, until=NOW + 2)]):
        table, _ = run(*weights, by("ann", at=end - 1))
        assert len(held(table)) == 1
        table, _ = run(by("ben", at=NOW + HOUR_MS), table=table)
        assert held(table) == []
        before = states(table, EVERY)
        # What comes again, or far too late, is not believed any more.
        table, _ = run(weigh(9), by("ann", right=False, at=end - 1), table=table)
        assert held(table) == []
        assert states(table, EVERY) != before


def test_a_revoked_downweight_is_kept_until_its_end() -> None:
    lifted = weigh(1, at=NOW + 1, until=NOW + 1)
    table, _ = run(weigh(until=NOW + 2 * HOUR_MS), lifted, by("ben", at=NOW + HOUR_MS))
    assert len(held(table)) == 1
    again, _ = run(weigh(until=NOW + 2 * HOUR_MS), table=dict(table))
    assert [again[key] for key in held(again)] == [table[key] for key in held(table)]


def test_downweighted_users_are_known_after_a_restart_and_a_new_epoch() -> None:
    table, _ = run(weigh(2), by("ann", right=False))
    before = states(table, EVERY)
    core = PartitionTask(0, 1, EPOCH, LearningConfig(TD), table.get)
    core.restore(list(table.items()))
    begin = core.applied_offset + 1
    core.apply(fetch(by("ann", right=False), by("ann", right=False), offsets=[begin, begin + 1]))
    rows = live(dict(core.commit().rows))
    one, _ = run(by("ann", right=False))
    assert states(table | rows, EVERY) == states(one, EVERY) != before


@pytest.mark.parametrize(
    ("path", "why"), [(EVERY, "nothing is above"), ("workflow_type=x/user_id=y", None)]
)
def test_an_invalid_downweight_is_a_dead_letter(path: str, why: str | None) -> None:
    _, commit = run(weigh(path=path))
    assert [why in reason for reason in reasons(commit)] == ([True] if why else [])


def test_another_partitions_user_is_a_dead_letter() -> None:
    found = []
    for partition in range(2):
        core = PartitionTask(partition, 2, EPOCH, LearningConfig(TD), {}.get)
        value, headers = weigh()
        batch = fetch(value)
        batch.headers[0] = headers
        core.apply(batch)
        found += [reason for reason in reasons(core.commit()) if "belongs to partition" in reason]
    assert len(found) == 1


def test_a_downweight_without_an_end_or_below_one_is_invalid() -> None:
    (value, headers) = weigh()
    for wrong in ({"every": 0}, {"until": None}, {"path": ""}):
        bad = msgspec.json.encode({**msgspec.json.decode(value), **wrong})
        _, commit = run((bad, headers))
        assert "not a control record" in reasons(commit)[0]
