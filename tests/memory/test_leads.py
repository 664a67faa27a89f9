"""Which rule is followed: retrieval only while its gain is clear, and nothing is foreseen."""

from __future__ import annotations

from random import Random

import orjson
import pytest

from memory.ranking.choice import Leads
from memory.ranking.standing import LEAST_OF_KIND, DiscountedGain, JudgedRankings, Standing


def test_retrieval_is_followed_while_its_gain_is_clear() -> None:
    leads = Leads.of(3)
    assert leads.leader() == 1
    for _ in range(20):
        leads.learn([0.6, 0.5, 0.2])
    assert leads.leader() == 0
    for _ in range(20):
        leads.learn([0.3, 0.5, 0.2])
    assert leads.leader() == 1
    for _ in range(40):
        leads.learn([0.3, 0.5, 0.9])
    assert leads.leader() == 2


def test_a_gain_by_chance_is_not_followed() -> None:
    chance = Random(1)
    gain = DiscountedGain()
    for _ in range(200):
        gain.learn(chance.choice((-0.5, 0.5)) + 0.002)
    assert 0 < gain.mean < gain.standard_error
    steady = DiscountedGain()
    for _ in range(200):
        steady.learn(gain.mean)
    assert steady.lead > 0


def test_what_was_learned_goes_on_to_the_bit() -> None:
    chance = Random(2)
    whole, part = Leads.of(4), Leads.of(4)
    for _ in range(50):
        part = Leads(orjson.loads(orjson.dumps(part.to_json())))
        right = [chance.random() for _ in range(4)]
        whole.learn(right)
        part.learn(right)
    assert part.to_json() == whole.to_json()
    one, other = Standing(), Standing()
    for number in range(50):
        other = Standing(orjson.loads(orjson.dumps(other.to_json())))
        judged = JudgedRankings(*(chance.random() for _ in range(4)))
        one.add(f"kind {number % 3}", judged)
        other.add(f"kind {number % 3}", judged)
    assert orjson.dumps(other.to_json()) == orjson.dumps(one.to_json())


@pytest.mark.parametrize("policy", [True, False])
def test_cases_are_shown_while_their_gain_over_the_usual_course_is_clear(policy: bool) -> None:
    chance = Random(3)
    useless, useful, equal = Standing(), Standing(), Standing()
    for number in range(64):
        right = chance.random()
        useless.add("order", JudgedRankings(right, right, right + 0.02 * (number % 3), 0.0))
        useful.add("order", JudgedRankings(right, right, right - 0.1, 0.0))
        equal.add("order", JudgedRankings(right, right, right, 0.0))
        if number + 1 < LEAST_OF_KIND:
            assert useless.helps("order", policy=policy)
    assert not useless.helps("order", policy=policy)
    assert useful.helps("order", policy=policy)
    assert equal.helps("order", policy=policy)
    assert useless.helps("another", policy=policy)


def test_a_standing_of_an_earlier_version_knows_no_workflow_type() -> None:
    old = {"runs": 64, "weight": 60.0, "sums": [6.0, 6.0, 9.0], "gain": 6.0, "square": 0.7,
           "kinds": {"order": [6.0, 6.0, 9.0]}}  # fmt: skip
    assert Standing(old).helps("order", policy=True)
    assert Standing(old).beats_similarity
