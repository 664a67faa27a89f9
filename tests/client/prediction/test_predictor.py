"""The predictor of calls: accuracy where the answer is known, determinism, replay, evidence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headstart.prediction.decision_record import DecisionRecord, UnknownRecord
from headstart.prediction.interface import ToolCall
from headstart.prediction.model import CallModel
from headstart.prediction.predictor import CallPredictor
from headstart.prediction.private_values import PrivateValues
from headstart.prediction.state_format import UnknownState, state_bytes
from tests.client.prediction.synthetic_runs import Score, play, support_runs, trained

ROOT = Path(__file__).parents[3]


def test_calls_that_follow_from_the_run_are_guessed_with_their_arguments() -> None:
    predictor, score = trained(60), Score()
    for steps in support_runs(60, seed=1):
        play(predictor.run(), steps, score)
    assert score.right / score.calls > 0.8  # whether an order is the last is not always known
    assert abs(score.confidence / score.calls - score.right / score.calls) < 0.1


def test_a_predictor_that_has_learned_nothing_guesses_nothing() -> None:
    run = CallPredictor().run()
    run.user("hello")
    assert run.guess() == []


def test_guesses_are_best_first_and_at_most_as_many_as_asked_for() -> None:
    run = trained(30).run()
    run.user("Hello. I want a refund please, my id is user_000001.")
    guesses = run.guess(2)
    confidences = [guess.confidence for guess in guesses]
    assert 1 <= len(guesses) <= 2
    assert confidences == sorted(confidences, reverse=True)
    assert run.guess(0) == []


def test_evidence_has_the_parts_of_a_confidence() -> None:
    predictor = trained(30)
    run = predictor.run()
    run.user("Hello. I want a refund please, my id is user_000001.")
    best = run.guess()[0]
    assert (best.tool, best.arguments) == ("get_account", {"user_id": "user_000001"})
    assert best.evidence.source == "arguments"
    assert best.evidence.tries >= 20
    assert best.evidence.repeats == 0
    assert 0.5 < best.evidence.tool_probability < 1
    assert 0.5 < best.evidence.arguments_probability < 1


@pytest.mark.parametrize(("kind", "ending"), [(int, ""), (float, ".25"), (str, "")])
def test_a_number_that_the_user_wrote_is_guessed_in_the_type_of_the_argument(
    kind: type, ending: str
) -> None:
    predictor = CallPredictor()
    for number in range(100, 130):
        run = predictor.run()
        run.user(f"Where is order {number}{ending}?")
        run.calls([ToolCall("get_order", {"order_id": kind(f"{number}{ending}")})])
        run.result("get_order", {"status": "sent"})
        run.calls([])
    run = predictor.run()
    run.user(f"Where is order 977{ending}?")
    (value,) = run.guess()[0].arguments.values()
    assert (value, type(value)) == (kind(f"977{ending}"), kind)


def test_two_numbers_of_a_text_go_to_the_arguments_in_their_order() -> None:
    predictor = CallPredictor()
    for number in range(40):
        run = predictor.run()
        run.user(f"Add {number} and {number + 7}.")
        run.calls([ToolCall("add", {"a": number, "b": number + 7})])
    run = predictor.run()
    run.user("Add 512 and 64.")
    assert run.guess()[0].arguments == {"a": 512, "b": 64}


def test_a_call_that_followed_the_same_call_is_guessed_from_memory() -> None:
    predictor = CallPredictor()
    for _ in range(4):
        run = predictor.run()
        for tool, word in (("open", "Xq"), ("close", "Zr"), ("open", "Vw"), ("lock", "Ku")):
            run.calls([ToolCall(tool, {"door": word})])
    run = predictor.run()
    run.calls([ToolCall("open", {"door": "Vw"})])
    best = run.guess()[0]
    assert (best.tool, best.arguments) == ("lock", {"door": "Ku"})
    assert best.evidence.repeats >= 3


def test_learning_from_records_gives_the_state_of_learning_online_to_the_bit() -> None:
    """Also where several runs learn in turn, so that what a guess has computed is outdated."""
    predictor, replayed = CallPredictor(), CallModel()
    runs = [(predictor.run(), iter(steps)) for steps in support_runs(40)]
    log: list[bytes] = []
    while runs:
        for pair in list(runs):
            run, steps = pair
            step = next(steps, None)
            if step is None:
                runs.remove(pair)
            elif not step.tool:
                run.user(step.text)
                run.guess()
            else:
                run.calls([ToolCall(step.tool, step.arguments)])
                assert run.record is not None
                log.append(run.record.to_bytes())
                run.result(step.tool, step.result)
                run.guess()
    for data in log:
        replayed.learn(DecisionRecord.from_bytes(data))
    assert state_bytes(replayed, PrivateValues(), 0, keep_values=False) == state_bytes(
        predictor.model, PrivateValues(), 0, keep_values=False
    )


def test_turns_of_several_calls_of_one_tool_are_replayed_alike() -> None:
    predictor, replayed = CallPredictor(), CallModel()
    for i in range(60):
        run = predictor.run()
        run.user(f"send {i % 7} and {i % 5} to the list")
        run.guess()
        run.calls([
            ToolCall("send", {"to": [{"id": str(i % n)}, {"id": str(i % 5)}], "n": i % n})
            for n in (7, 5, 7)
        ])  # fmt: skip
        assert run.record is not None
        replayed.learn(DecisionRecord.from_bytes(run.record.to_bytes()))
    assert state_bytes(replayed, PrivateValues(), 0, keep_values=False) == state_bytes(
        predictor.model, PrivateValues(), 0, keep_values=False
    )


PROGRAM = """
import hashlib
from tests.client.prediction.synthetic_runs import trained
print(hashlib.sha256(trained(25).to_bytes()).hexdigest())
"""


def test_the_state_does_not_depend_on_the_seed_of_hashes() -> None:
    found = set()
    for seed in ("0", "1", "77"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, cwd=ROOT, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        found.add(result.stdout)
    assert len(found) == 1


def test_records_have_no_value_of_a_call_or_a_result() -> None:
    predictor = CallPredictor()
    for steps in support_runs(10):
        run = predictor.run(user_id="u1")
        for step in steps:
            if not step.tool:
                run.user(step.text)
                continue
            run.calls([ToolCall(step.tool, step.arguments)])
            assert run.record is not None
            text = run.record.to_bytes().decode()
            for part in ("user_", "#W", "card", "sent", "order_id", "refund please", "parcel"):
                assert part not in text.replace(step.tool, "")
            run.result(step.tool, step.result)


def test_a_state_is_read_again_and_goes_on_as_before() -> None:
    predictor = trained(20)
    again = CallPredictor.from_bytes(predictor.to_bytes())
    assert again.to_bytes() == predictor.to_bytes()
    for steps in support_runs(10, seed=3):
        for each in (predictor, again):
            play(each.run(), steps)
    assert again.to_bytes() == predictor.to_bytes()


def test_a_state_without_values_has_none() -> None:
    predictor = CallPredictor.from_bytes(trained(20).to_bytes(keep_values=False))
    run = predictor.run()
    run.user("Hello. my id is user_000001.")
    assert run.guess() == []  # skeletons are values, too: they come with the first calls
    assert predictor.model.version > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.replace(b"predictor 1\n", b"predictor 2\n", 1), "upgrade the client"),
        (lambda data: b"{}", "no state of a predictor"),
        (lambda data: data[:-20], "damaged"),
        (lambda data: data[:60] + bytes([data[60] ^ 255]) + data[61:], "damaged"),
    ],
)
def test_a_state_that_cannot_be_read_is_refused(change, message) -> None:  # type: ignore
    with pytest.raises(UnknownState, match=message):
        CallPredictor.from_bytes(change(trained(3).to_bytes()))


def test_a_state_of_another_key_is_refused() -> None:
    with pytest.raises(UnknownState, match="hash_key"):
        CallPredictor.from_bytes(trained(3).to_bytes(), hash_key=b"other")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"[1]", b"[2,1,2,3]", b"null"])
def test_an_invalid_record_is_refused(data: bytes) -> None:
    with pytest.raises(UnknownRecord):
        DecisionRecord.from_bytes(data)
