"""Profiles of users in live guesses: own cases of other agents, the window, and a memory off."""

from __future__ import annotations

import pytest

from memory.cases.case import Case
from memory.speculation.past_cases import PastCases
from memory.speculation.predictor import MemoryEvidence
from memory.users.profile import MemoryProfile
from tests.memory.listed_memory import AT, DAY_MS, Stored, played
from tests.memory.repeated_tasks import BackOffPredictor, repeated


def evidence(past: PastCases, case: Case) -> MemoryEvidence:
    """Return a predictor that has seen the case once, so that it guesses, ten days after it."""
    found = MemoryEvidence(BackOffPredictor(), past, now_ms=lambda: AT + 10 * DAY_MS)
    played(found.run(), case)
    return found


def most_votes(past: PastCases, case: Case, user: str, agent: str) -> int:
    """Return how many past runs voted for the guesses of a run of a user and an agent."""
    guesses = played(evidence(past, case).run(agent=agent, user_id=user), case)
    return max(each.memory.cases for each in guesses if each.memory is not None)


def of_two_agents() -> tuple[Stored, Case]:
    """Ten equal runs of ann, five by the agent `a`, then five by `b`, and one of bob."""
    one = next(case for case in repeated(20) if len(case.calls) > 2)
    runs = [one._replace(key=str(n), writer="user:ann", at=AT + n * DAY_MS) for n in range(10)]
    stored = Stored([*runs, one._replace(key="99", writer="user:bob", at=AT)])
    stored.agents = {str(n): "a" if n < 5 else "b" for n in range(10)}
    return stored, one


@pytest.mark.parametrize(
    ("profile", "agent", "votes"),
    [
        (None, "a", 6),  # the agent's own five, and bob's
        (None, "b", 6),
        (None, "c", 1),
        (None, "", 1),  # no agent is named
        (MemoryProfile(shared=True), "a", 8),  # the most that vote
        (MemoryProfile(window_size=2), "a", 3),
        (MemoryProfile("a", window_size=3), "a", 4),
        (MemoryProfile("b", window_size=3), "a", 6),
        (MemoryProfile(window_days=2, shared=True), "a", 3),  # of the days 8 and 9
    ],
)
def test_a_run_is_given_the_own_cases_that_the_profile_lets_through(
    profile: MemoryProfile | None, agent: str, votes: int
) -> None:
    stored, case = of_two_agents()
    stored.set = {} if profile is None else {"ann": [profile]}
    past = past_of_stored(stored)
    assert most_votes(past, case, "ann", agent) == votes
    assert most_votes(past, case, "eve", agent) == 5, "others are given four of ann's, and bob's"


def test_a_user_whose_memory_is_off_is_given_no_case_and_told_so() -> None:
    stored, case = of_two_agents()
    past = past_of_stored(stored)
    run = evidence(past, case).run(agent="a", user_id="ann")
    assert any(each.memory and each.memory.cases for each in played(run, case))
    stored.set = {"ann": [MemoryProfile(enabled=False), MemoryProfile("a")]}
    past.refresh()
    guesses = played(run, case)
    assert guesses
    assert all(each.memory and each.memory.cases == 0 for each in guesses)
    assert {each.memory.degraded for each in guesses if each.memory} == {
        "the memory of user 'ann' is off (`headstart memory profile show`)"
    }
    stored.set = {}
    past.refresh()
    assert any(each.memory and each.memory.cases for each in played(run, case))


def past_of_stored(stored: Stored) -> PastCases:
    past = PastCases(stored, "refund")
    assert past.refresh() == ""
    return past
