"""Past runs as a second input of the confidence of a live guess, without a database."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from math import log
from typing import Any

import pytest

from headstart.arguments.checks import InvalidArgument
from headstart.prediction.interface import PredictedCall, ToolCall
from headstart.scrubbing.scrubber import Scrubber, Scrubbing
from memory.cases.case import Case
from memory.cases.episode_case import case_of_episode
from memory.episodes.hashes import hash64, id_of_text, id_text
from memory.evaluation.confidence import judged_guesses
from memory.ranking.evidence import CallIndex
from memory.retrieval.result import Retrieval
from memory.speculation.past_cases import PastCases
from memory.speculation.predictor import MemoryEvidence
from memory.speculation.rules import CalibratedVotes, SuccessBoost, is_sole_writer
from memory.speculation.stored_calls import stored_call
from tests.memory.listed_memory import AT, DAY_MS, Stored, episode, played
from tests.memory.repeated_tasks import BackOffPredictor, offline, repeated


def live(
    cases: Sequence[Case], rule: CalibratedVotes, stored: Stored, refreshed: Callable[[int], bool]
) -> list[float]:
    past = PastCases(stored, "refund")
    predictor = MemoryEvidence(BackOffPredictor(), past, rule=rule)
    found = []
    for number, case in enumerate(cases):
        if refreshed(number):
            past.refresh()
        run = predictor.run(user_id=case.writer.removeprefix("user:"))
        found += [each.confidence for each in played(run, case)]
        stored.cases.append(case)
    return found


def test_live_confidences_equal_the_offline_ones_to_the_bit() -> None:
    cases = repeated(80)
    found = live(cases, CalibratedVotes(), Stored(), lambda _: True)
    expected = [confidence for _, confidence, _ in offline(cases)]
    assert found == expected
    assert len(found) > 300

    rule = CalibratedVotes()
    rule.least_writers = 0  # as `memory evaluate`, which has no such bound
    unbounded = live(cases, rule, Stored(), lambda _: True)
    assert unbounded == [confidence for _, confidence, _ in offline(cases, least_writers=0)]
    losses = [each.log_loss[1] for each in judged_guesses(cases)]
    assert losses == [sum_of(each) for each in by_run(cases, unbounded)]


def by_run(cases: Sequence[Case], confidences: Sequence[float]) -> list[list[tuple[float, bool]]]:
    truth = iter(right for _, _, right in offline(cases, least_writers=0))
    left = iter(confidences)
    found = []
    for number, case in enumerate(cases):
        count = 0 if number == 0 else len(case.calls) - 1
        found.append([(next(left), next(truth)) for _ in range(count)])
    return found


def sum_of(guesses: Sequence[tuple[float, bool]]) -> float:
    total = 0.0
    for confidence, right in guesses:
        total -= log(confidence if right else 1 - confidence)
    return total


def past_of(cases: Sequence[Case], **options: Any) -> PastCases:
    past = PastCases(Stored(cases), "refund", **options)
    assert past.refresh() == ""
    return past


class OneGuess:
    """Always guesses one call, and more calls below it."""

    def __init__(self, *guesses: tuple[str, float], fails: bool = False) -> None:
        self._guesses = [
            PredictedCall(tool, {"item": 1}, confidence, None)  # type: ignore[arg-type]
            for tool, confidence in guesses
        ]

    def run(self, *, agent: str = "", user_id: str = "") -> Any:
        return self

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        return self._guesses[:limit]

    def calls(self, calls: Sequence[ToolCall]) -> None:
        pass

    def user(self, text: str) -> None:
        pass


FIRST = ToolCall("find", {"item": 1})


def runs_of(*writers: str, tool: str = "pay", reward: float = 1.0) -> list[Case]:
    calls = (FIRST, ToolCall(tool, {"item": 1}))
    return [
        Case(f"{hash64(writer, tool, str(n))}", writer, "", "refund", "pay order", calls, reward,
             AT + n)
        for n, writer in enumerate(writers)
    ]  # fmt: skip


def confidence_after_first(past: PastCases, user: str = "me", rule: Any = None) -> PredictedCall:
    predictor = MemoryEvidence(OneGuess(("pay", 0.6)), past, rule=rule, now_ms=lambda: AT)
    run = predictor.run(user_id=user)
    run.user("pay my order")
    run.calls([FIRST])
    return run.guess()[0]


def test_calls_of_an_earlier_run_of_the_conversation_do_not_count() -> None:
    past = past_of(runs_of("user:a", "user:b"))
    run = MemoryEvidence(OneGuess(("pay", 0.6)), past).run()
    run.calls([ToolCall(tool, {}) for tool in ("one", "two", "three")])
    run.calls([FIRST])
    assert run.guess()[0].memory.cases == 0  # type: ignore[union-attr]
    run.run_begun()
    run.calls([FIRST])
    assert run.guess()[0].memory.cases == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("rule", [CalibratedVotes, SuccessBoost])
@pytest.mark.parametrize(
    ("writers", "raises"),
    [
        (("user:a", "user:b"), True),
        (("user:a",) * 8, False),
        (("user:me",) * 8, True),  # there is no other
        (("agent:me",) * 8, False),
        (tuple(f"session:{n}" for n in range(8)), False),
        (("user:me", "user:a"), True),
        (tuple(f"run:{n}" for n in range(8)), False),
        (("run:1", "user:a"), True),
    ],
)
def test_two_independent_writers_are_needed(rule: Any, writers: Any, raises: bool) -> None:
    guess = confidence_after_first(past_of(runs_of(*writers)), rule=rule())
    assert (guess.confidence > 0.6) is raises
    assert guess.memory is not None
    assert guess.memory.writers == len({w[:4] if w[0] in "rs" else w for w in writers})
    assert guess.memory.own_confidence == 0.6


@pytest.mark.parametrize("rule", [CalibratedVotes, SuccessBoost])
@pytest.mark.parametrize(
    ("writer", "allowed", "suffices"),
    [
        ("user:me", "user", True),
        ("user:me", "agent", True),
        ("user:me", "none", False),
        ("agent:me", "agent", True),
        ("agent:me", "user", False),
        ("run:1", "agent", False),
    ],
)
def test_a_sole_writer_suffices_as_it_is_allowed(
    rule: Any, writer: str, allowed: Any, suffices: bool
) -> None:
    index = CallIndex()
    for each in runs_of(*[writer] * 4):
        index.add(each)
    assert is_sole_writer(index, writer, allowed) is suffices
    assert not is_sole_writer(index, "user:other", allowed)
    index.add(runs_of("user:other")[0])
    assert not is_sole_writer(index, writer, allowed), "there is another"
    own = confidence_after_first(past_of(runs_of(*["user:me"] * 4)), rule=rule(sole_writer="none"))
    assert own.confidence <= 0.6
    with pytest.raises(ValueError, match="user, agent or none"):
        rule(sole_writer="me")


def test_one_writer_does_not_carry_another_ones_vote() -> None:
    mixed = [*runs_of("user:a", tool="pay"), *runs_of("user:b", "user:c", tool="send")]
    guess = confidence_after_first(past_of(mixed))
    assert guess.confidence < 0.6
    assert guess.memory is not None
    assert (guess.memory.cases, guess.memory.writers) == (3, 1)


def test_fewer_than_two_writers_cannot_be_asked_for() -> None:
    for wrong in (1, 0, True, 2.5):
        with pytest.raises(ValueError, match="least_writers"):
            CalibratedVotes(least_writers=wrong)  # type: ignore[arg-type]


def test_the_boost_is_that_of_the_sources() -> None:
    rule = SuccessBoost()
    many = runs_of(*(f"user:{n}" for n in range(9)))
    assert confidence_after_first(past_of(many), rule=rule).confidence == pytest.approx(0.7)
    failed = runs_of("user:a", "user:b", "user:c", reward=0.0)
    assert confidence_after_first(past_of(failed), rule=rule).confidence == 0.6
    old = [each._replace(at=AT - 7 * DAY_MS - 1) for each in many]
    assert confidence_after_first(past_of(old), rule=rule).confidence == 0.6
    other = [each._replace(query="something else") for each in many]
    assert confidence_after_first(past_of(other), rule=rule).confidence == 0.6


def test_no_guess_is_added_or_lost_and_the_best_comes_first() -> None:
    past = past_of(runs_of("user:a", "user:b", "user:c"))
    run = MemoryEvidence(OneGuess(("send", 0.7), ("pay", 0.6)), past).run()
    run.calls([FIRST])
    guesses = run.guess()
    assert [each.tool for each in guesses] == ["pay", "send"]
    assert [each.memory.own_confidence for each in guesses if each.memory] == [0.6, 0.7]


@pytest.mark.parametrize("why", ["Postgres is away", "raise"])
def test_without_the_memory_guesses_are_those_of_the_predictor(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored = Stored(runs_of("user:a", "user:b"), why)
    now = [0.0]
    past = PastCases(stored, "refund", refresh_s=10, max_age_s=100, clock=lambda: now[0])
    with caplog.at_level(logging.CRITICAL):
        degraded = past.refresh()
    assert degraded
    guess = confidence_after_first(past)
    assert (guess.confidence, guess.memory.degraded) == (0.6, degraded)  # type: ignore[union-attr]
    stored.why = ""
    past.refresh()
    assert confidence_after_first(past).confidence > 0.6

    stored.why, now[0] = why, 50.0
    with caplog.at_level(logging.CRITICAL):
        past.refresh()
    older = confidence_after_first(past)
    assert older.confidence > 0.6, "what was read before serves for a while"
    assert older.memory is not None
    assert older.memory.degraded
    now[0] = 101.0
    assert confidence_after_first(past).confidence == 0.6
    assert not past.snapshot().cases


def test_a_guess_never_waits_and_cases_are_read_once_a_period() -> None:
    stored = Stored(runs_of("user:a", "user:b"))
    now = [0.0]
    past = PastCases(stored, "refund", refresh_s=10, clock=lambda: now[0])
    past.refresh()
    asked = stored.asked
    for _ in range(100):
        past.snapshot()
    assert stored.asked == asked
    now[0] = 10.0
    past.snapshot()
    past._join(time.monotonic() + 60)
    assert stored.asked == asked + 1


def test_only_what_has_changed_is_indexed_again() -> None:
    runs = runs_of("user:a", "user:b")
    stored = Stored(runs)
    past = PastCases(stored, "refund")
    past.refresh()
    before = past.snapshot().by_calls
    past.refresh()
    assert past.snapshot().by_calls is before
    stored.cases = [runs[0], runs[1]._replace(reward=0.0)]
    past.refresh()
    assert [each.reward for each in past.snapshot().cases] == [1.0, 0.0]
    assert past.snapshot().cases[0] is before.cases[0]
    stored.cases = [runs[1]]
    past.refresh()
    assert [each.key for each in past.snapshot().cases] == [runs[1].key], "an erased run is gone"


def test_an_error_of_the_rule_fails_no_predictor(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(CalibratedVotes):
        def run(self, index: Any, shown: Any) -> Any:
            raise ZeroDivisionError

        def learn(self, judged: Any, calls: Any) -> None:
            raise ZeroDivisionError

    guess = confidence_after_first(past_of(runs_of("user:a", "user:b")), rule=Broken())
    assert guess.confidence == 0.6
    assert "no evidence" in caplog.text


def test_runs_that_have_not_ended_do_not_vote() -> None:
    stored = Stored()
    found = tuple(episode(each, None) for each in runs_of("user:a", "user:b"))
    stored.search = lambda text="", **_: Retrieval("r", found)  # type: ignore[method-assign]
    past = PastCases(stored, "refund")
    assert past.refresh() == ""
    assert not past.snapshot().cases


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InvalidArgument, match="predictor"):
        MemoryEvidence(object(), past_of([]))  # type: ignore[arg-type]
    for wrong in ({"most": 0}, {"most": 501}, {"refresh_s": -1}, {"max_age_s": 1}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            PastCases(Stored(), "refund", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [{}, {"b": 1, "a": [1.0, "x"]}, {"long": "y" * 9_000}, {"deep": [[[[[1]]]]]}, {"n": 2**70}],
)
def test_a_live_call_equals_the_one_of_its_episode(arguments: dict[str, Any]) -> None:
    call = stored_call(ToolCall("find", arguments))
    again = episode(Case("1", "user:a", "", "refund", "q", (call,), 1.0, AT))
    assert case_of_episode(again, at=again.ended).calls == (call,)
    assert stored_call(call) == call


def test_ids_of_episodes_survive_the_scrubber() -> None:
    scrub = Scrubber(Scrubbing())
    for number in range(2_000):
        id = hash64("episode", str(number))
        line = b'{"data":{"memory":{"episodes":["%s"]}}}' % id_text(id).encode()
        assert scrub(line) == line
        assert id_of_text(id_text(id)) == id == id_of_text(str(id))
    assert id_of_text("0x12") is None
    assert id_of_text("9" * 19) is None
