"""A user who writes far more than others, with little success, is quarantined as a whole."""

from __future__ import annotations

import json

import psycopg
import pytest

from memory.store.quarantine import FASTER, FEWEST
from tests.memory.consolidation.repeating import Event
from tests.memory.quarantine.writing import (
    BEGIN,
    HOUR_MS,
    QUARANTINED,
    STATES,
    assembled,
    limited,
    rebuilt,
    swept,
    written,
)
from tests.memory.stored_runs import rows

pytestmark = pytest.mark.integration

LIMITS = limited(low_reward=0.25)
COUNT = 2 * FEWEST
OTHERS = int(COUNT / FASTER) - 1


def others(count: int = OTHERS, hour: int = 0) -> list[Event]:
    return [
        each
        for n in range(3)
        for each in written(f"other{n}-{hour}", count, hour=hour, user=f"u{n}")
    ]


def flood(outcome: str = "failure", count: int = COUNT, **more: object) -> list[Event]:
    return written("flood", count, user="mallory", outcome=outcome, **more)


def reasons(dsn: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, reason in rows(dsn, QUARANTINED):
        key = f"{name.split('-')[0]} {reason}"
        found[key] = found.get(key, 0) + 1
    return found


def test_a_flood_of_failures_is_quarantined_as_a_whole_and_so_by_a_rebuild(migrated: str) -> None:
    assembled(migrated, LIMITS, *others(), *flood(), *written("later", 3, hour=2, user="mallory"))
    assert reasons(migrated) == {"flood low-reward flood": COUNT}
    before = rows(migrated, STATES)
    assert rebuilt(migrated, LIMITS, at_once=5) == before


@pytest.mark.parametrize(
    "made",
    [
        [*others(), *flood("success")],
        [*others(), *flood(count=FEWEST - 1)],
        [*others(OTHERS + 2), *flood()],
        flood(),
    ],
    ids=["rewarded", "few", "no faster than others", "alone at night"],
)
def test_what_is_no_flood_of_low_reward_counts(migrated: str, made: list[Event]) -> None:
    assembled(migrated, LIMITS, *made)
    swept(migrated, LIMITS)
    assert reasons(migrated) == {}


def test_others_in_the_day_before_are_what_it_is_compared_with(migrated: str) -> None:
    assembled(migrated, LIMITS, *others(hour=-20), *flood())
    assert reasons(migrated) == {"flood low-reward flood": COUNT}
    assert rebuilt(migrated, LIMITS) == rows(migrated, STATES)


def test_users_feedback_that_rejects_successes_makes_it_one(migrated: str) -> None:
    """A poisoned memory reports success; misled users say otherwise."""
    assembled(migrated, LIMITS, *others(), *flood("success"))
    assert reasons(migrated) == {}
    ends = [each for each in flood("success") if each["event_type"] == "workflow_complete"]
    said = {"event_type": "user_feedback", "data": {"accepted": False}}
    judged = [
        each | said | {"id": f"{each['id'][:-4]}be{n:02}", "user_id": f"v{n}"}
        for n in range(4)
        for each in ends
    ]
    assembled(migrated, LIMITS, *judged)
    assert reasons(migrated) == {"flood low-reward flood": COUNT}


def note_flood(dsn: str, at: int, until: int, every: int = 9) -> None:
    evidence = {"what": "user", "user": "mallory", "every": every, "until": until, "share": 0.9}
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "INSERT INTO notices (id, kind, tenant, workflow_type, path, at_ms, evidence, "
            "partition) VALUES (%s, 'anomaly', 'acme', 'refund', 'p', %s, %s, 0)",
            [f"{at}", at, json.dumps(evidence)],
        )


def test_a_notice_of_a_flood_counts_as_one(migrated: str) -> None:
    """The detector of thresholds sees all outcomes: more than the runs that have ended."""
    note_flood(migrated, BEGIN - HOUR_MS, BEGIN)
    note_flood(migrated, BEGIN + 1, BEGIN + HOUR_MS, every=1)
    assembled(migrated, LIMITS, *flood())
    assert reasons(migrated) == {}, "one was over, the other ends one"
    note_flood(migrated, BEGIN + HOUR_MS - 1, BEGIN + 25 * HOUR_MS)
    swept(migrated, LIMITS)
    assert reasons(migrated) == {"flood flood notice": COUNT}
    assert rebuilt(migrated, LIMITS) == rows(migrated, STATES)
    with psycopg.connect(migrated) as connection:
        connection.execute("DELETE FROM notices")  # after `notices_days`
    assert swept(migrated, LIMITS).released == 0
    assert swept(migrated, LIMITS._replace(low_reward=0.0)).released == COUNT
