"""The learned ranking: exact replay, poisoned cases, confidence."""

from __future__ import annotations

from math import log
from random import Random
from time import thread_time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.prediction.interface import ToolCall
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.evaluation.poisoning import attacked_questions
from memory.evaluation.prequential import query_of
from memory.ranking.bank import CaseQuestion
from memory.ranking.boost import MAX_AGE_MS, boosted
from memory.ranking.choice import LearnedChoice
from memory.ranking.evidence import CalibratedConfidence, CallIndex, RunSoFar, Vote, log_odds
from memory.ranking.features import FIRST
from memory.ranking.logistic import OnlineLogistic
from memory.ranking.memory import CaseMemory
from tests.memory.run_cases import case, intents

EMBEDDER = WordLlamaEmbedder()


def learned(count: int, choice: LearnedChoice | None = None, start: int = 0) -> CaseMemory:
    memory = CaseMemory(choice)
    cases = intents(count, seed=5)[start:]
    for each, vector in zip(cases, EMBEDDER.embed([e.query for e in cases]), strict=True):
        memory.learn(each, vector)
    return memory


def test_the_same_runs_give_the_same_policy_to_the_bit() -> None:
    one, other = (orjson.dumps(learned(80).choice.to_json()) for _ in range(2))
    assert one == other
    assert orjson.dumps(LearnedChoice.from_json(orjson.loads(one)).to_json()) == one


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), max_size=20), st.integers(0, 20))
def test_a_stored_model_goes_on_to_the_bit(
    examples: list[tuple[float, float]], stored_after: int
) -> None:
    whole, part = OnlineLogistic([0.1, -0.2]), OnlineLogistic([0.1, -0.2])
    for place, (feature, label) in enumerate(examples):
        if place == stored_after:
            part = OnlineLogistic.from_json(orjson.loads(orjson.dumps(part.to_json())))
        whole.learn([1.0, feature], label)
        part.learn([1.0, feature], label)
    assert (whole.weights, whole.squares) == (part.weights, part.squares)


def test_one_update_costs_at_most_20_us() -> None:
    model = OnlineLogistic(FIRST)
    features = [0.5] * len(FIRST)
    best = 1.0
    for _ in range(20):
        began = thread_time()
        for _ in range(100):
            model.learn(features, 0.4)
        best = min(best, (thread_time() - began) / 100)
    assert best < 20e-6


def test_an_evidence_set_has_the_course_of_the_intent() -> None:
    memory = learned(200)
    cases = intents(260, seed=5)[200:]
    right = 0
    for each in cases:
        vector = EMBEDDER.embed([each.query])[0]
        found = memory.ask(CaseQuestion(each.query, each.calls[0], "me", vector))
        assert 1 <= len(found.clusters) <= 4
        right += each.reward == 1.0 and found.clusters[0].sequence == each.tools
    assert right > 0.3 * len(cases)
    assert not memory.choice.abstains


def test_without_cases_it_abstains() -> None:
    assert CaseMemory().ask(CaseQuestion("", ToolCall("t", {}))).abstained


@pytest.mark.parametrize("tasks", ["own", "intent"])
def test_fifty_poisoned_cases_by_one_writer_steer_nothing(tasks: str) -> None:
    cases = intents(150, tasks="intent" if tasks == "intent" else "own", failing=0.2)
    vectors = EMBEDDER.embed([query_of(each) for each in cases])
    found = list(attacked_questions(cases, vectors, questions=40))
    assert len(found) == 40
    assert not any(each.memory for each in found)
    assert all(each.nearest for each in found)  # a memory of the nearest case alone is steered


def test_votes_raise_the_confidence_of_what_past_runs_did() -> None:
    index = CallIndex()
    for number in range(6):
        index.add(case(number, "", ("b", "c"), first=ToolCall("a", {"id": 7})))
    run = RunSoFar(index)
    run.call(ToolCall("a", {"id": 7}))
    vote = run.vote()
    assert vote.runs == 6
    assert vote.share("b") > 0.9
    confidence = CalibratedConfidence()
    for _ in range(50):
        confidence.learn(0.5, "b", vote, right=True)
    assert confidence.confidence(0.5, "b", vote) > confidence.confidence(0.5, "b") + 0.2
    stranger = RunSoFar(index)
    stranger.call(ToolCall("a", {"id": 8}))
    assert stranger.vote().runs == 0


def test_votes_that_say_nothing_cost_nearly_nothing() -> None:
    """The logistic with votes alone, which was the rule, loses more than .005 nats a guess."""
    chance = Random(4)
    confidence, voted = CalibratedConfidence(), OnlineLogistic((0.0, 1.0, 0.0, 0.5, 0.0))
    alone = CalibratedConfidence(with_votes=False)
    losses, count = [0.0, 0.0, 0.0], 600
    for _ in range(count):
        own, right = 0.5, chance.random() < 0.5
        yes, odds = float(chance.randrange(9)), log_odds(own)
        votes = Vote({"b": yes, "c": 8.0 - yes}, 8)
        inputs = [1.0, odds, 1.0, log_odds(votes.share("b")), odds]
        found = (confidence.confidence(own, "b", votes), voted.probability(inputs),
                 alone.confidence(own, "b"))  # fmt: skip
        for place, probability in enumerate(found):
            losses[place] -= log(probability if right else 1 - probability)
        confidence.learn(own, "b", votes, right)
        voted.learn(inputs, float(right))
        alone.learn(own, "b", votes, right)
    with_votes, of_votes, without = (each / count for each in losses)
    assert of_votes - without > 0.005
    assert with_votes - without < 0.002
    assert confidence.trust < 0.1


def test_one_writer_has_one_vote() -> None:
    index = CallIndex()
    for number in range(6):
        index.add(case(number, "", ("x",), first=ToolCall("a", {}), writer="flood"))
    for number in range(2):
        index.add(case(number, "", ("b",), first=ToolCall("a", {}), writer=f"w{number}"))
    run = RunSoFar(index)
    run.call(ToolCall("a", {}))
    vote = run.vote()
    assert vote.votes["b"] > vote.votes["x"]


def test_the_boost_of_the_sources() -> None:
    now = 10 * MAX_AGE_MS
    fresh = [case(n, "q", ("b",), reward=1.0)._replace(at=now - n) for n in range(9)]
    assert boosted(0.5, "b", fresh, now) == pytest.approx(0.6)
    assert boosted(0.95, "b", fresh, now) == 1
    assert boosted(0.5, "other", fresh, now) == 0.5
    old = [each._replace(at=now - MAX_AGE_MS - 1) for each in fresh]
    failed = [each._replace(reward=0.0) for each in fresh]
    assert boosted(0.5, "b", [*old, *failed], now) == 0.5
