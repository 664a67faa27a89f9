"""Corrections: events of the owner that change what an episode says, and nothing else."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from memory.episodes.assembly import assemble
from memory.episodes.corrections import InvalidCorrection, require_correction
from memory.episodes.hashes import query_hash
from memory.episodes.record import Episode
from memory.episodes.run_event import RunEvent, run_event
from memory.users.corrections import correction_event, includes

AT = 1_750_000_000_000
DAY_MS = 86_400_000


def event(kind: str, at: int, user: str | None = "u1", **data: Any) -> RunEvent:
    fields = {"id": str(uuid4()), "timestamp": AT + at, "event_type": kind, "user_id": user}
    return run_event(fields | {"data": data})


def run(user: str | None = "u1") -> list[RunEvent]:
    said = {"query": "cancel it", "response": "done", "outcome": "success"}
    lists = {"concepts": ["refund"], "insights": ["likes tea"], "context": {"domain": "retail"}}
    return [event("task_complete", 0, user), event("workflow_complete", 9, user, **said, **lists)]


def correction(at: int, user: str | None = "u1", **changes: Any) -> RunEvent:
    return event("user_feedback", at, user, correction=changes, source="user")


def made(*events: RunEvent) -> Episode:
    return assemble("acme", "refund", "w1", events)


def test_a_correction_changes_what_it_names_and_what_follows_from_it() -> None:
    before = made(*run())
    fix = {"query": "return it", "response": None, "outcome": "failure", "insights": ["a", "a"]}
    after = made(*run(), correction(DAY_MS, **fix))
    assert after == before._replace(
        query="return it", query_hash=query_hash("return it"), response=None, outcome="failure",
        reward=0.0, insights=("a",), ended=AT + DAY_MS, events=3,
    )  # fmt: skip
    assert (before.reward, after.duration_ms) == (1.0, 9.0), "a day later is no part of the run"


def test_the_last_correction_of_each_field_counts_in_any_order() -> None:
    fixes = [correction(20, query="a", concepts=["x"]), correction(30, query="b")]
    one, other = made(*run(), *fixes), made(*reversed(fixes), *run())
    assert one == other
    assert (one.query, one.concepts, one.domains) == ("b", ("x",), ("retail",))


@pytest.mark.parametrize("owner", ["u1", None])
@pytest.mark.parametrize("sender", ["u1", "u2", None])
def test_only_the_owner_corrects(owner: str | None, sender: str | None) -> None:
    found = made(*run(owner), correction(20, sender, query="mine now"))
    assert (found.query == "mine now") == (owner == sender)
    assert found.user_id == owner, "a correction makes its sender no owner"


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"query": ""}, {"query": " "}, {"query": 3}, {"outcome": "great"}, {"outcome": None},
        {"concepts": "x"}, {"concepts": [""]}, {"concepts": None}, {"calls": []}, {"reward": 1},
    ],
)  # fmt: skip
def test_what_is_no_correction_is_refused_and_changes_nothing(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidCorrection):
        require_correction(changes)
    before, after = made(*run()), made(*run(), correction(20, **changes))
    assert after == before._replace(ended=AT + 20, events=3)


def test_the_event_of_a_correction_is_applied() -> None:
    before = made(*run())
    sent = correction_event(before, {"query": "return it"})
    after = made(*run(), run_event(sent))
    assert after.query == "return it"
    assert includes(after, sent)
    assert not includes(before, sent)
    with pytest.raises(InvalidCorrection, match="query must be a text"):
        correction_event(before, {"query": 5})
