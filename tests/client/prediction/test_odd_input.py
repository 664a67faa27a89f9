"""Whatever an agent, a tool or a user sends: the predictor goes on, within its bounds."""

from __future__ import annotations

import json
import math
import random
import sys
from array import array
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.prediction.interface import ToolCall
from headstart.prediction.predictor import CallPredictor
from tests.client.prediction.synthetic_runs import play, support_runs, trained

LARGEST_STATE = 2_000_000  # bytes of memory

SCALARS = (
    st.none() | st.booleans() | st.floats() | st.text(max_size=12)
    | st.integers() | st.builds(lambda: 10**5_000) | st.just("\ud800") | st.just(b"bytes")
)  # fmt: skip
ANYTHING = st.recursive(
    SCALARS,
    lambda below: (
        st.lists(below, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.integers(0, 3), below, max_size=4)
        | st.tuples(below, below)
    ),
    max_leaves=12,
)
NAMES = st.sampled_from(["get", "put", "", "get!", "größe"])
ACTIONS = st.one_of(
    st.tuples(st.just("user"), ANYTHING),
    st.tuples(st.just("said"), ANYTHING),
    st.tuples(st.just("result"), NAMES, ANYTHING, st.booleans()),
    st.tuples(st.just("calls"), st.lists(st.builds(ToolCall, NAMES, ANYTHING), max_size=3)),
    st.tuples(st.just("guess"), st.integers(-1, 5)),
)


@settings(max_examples=80)
@given(st.lists(ACTIONS, max_size=25))
def test_nothing_is_raised_and_every_confidence_is_a_probability(actions: list[Any]) -> None:
    predictor = CallPredictor()
    for _ in range(2):
        run = predictor.run()
        for name, *given_ in actions:
            if name == "result":
                run.result(given_[0], given_[1], error=given_[2])
                continue
            for guess in getattr(run, name)(*given_) or ():
                assert 0 <= guess.confidence <= 1
    CallPredictor.from_bytes(predictor.to_bytes())


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"in": [value]}
    return value


@pytest.mark.parametrize(
    "arguments",
    [
        [1, 2], None, "text", '{"a": 1}', {1: 2}, {"a": {1, 2}}, {"a": object()},
        {"a": nested(500)},
        {f"k{i}": i for i in range(1_000)}, {"a": 10**5_000}, {"a": [0] * 10_000},
    ],
)  # fmt: skip
def test_of_arguments_that_are_not_learned_the_tool_is_learned(arguments: Any) -> None:
    predictor = CallPredictor()
    for _ in range(5):
        run = predictor.run()
        run.calls([ToolCall("odd", arguments)])
        run.result("odd", arguments)
        run.calls([ToolCall("next", {"a": 1})])
    run = predictor.run()
    run.calls([ToolCall("odd", arguments)])
    run.result("odd", arguments)
    assert run.guess()[0][:2] == ("next", {"a": 1})


def test_not_a_number_is_a_value_as_any_other() -> None:
    predictor = CallPredictor()
    for _ in range(5):
        predictor.run().calls([ToolCall("set", {"x": math.nan, "y": -math.inf})])
    best = predictor.run().guess()[0]
    assert math.isnan(best.arguments["x"])  # type: ignore[arg-type]
    assert best.arguments["y"] == -math.inf


def test_values_that_python_compares_as_equal_are_distinguished() -> None:
    predictor = CallPredictor()
    for value in [1, True, 1.0, "1"] * 5:
        run = predictor.run()
        run.result("read", {"x": value})
        run.calls([ToolCall("set", {"x": value})])
    for value in (1, True, 1.0, "1"):
        run = predictor.run()
        run.result("read", {"x": value})
        assert json.dumps(run.guess()[0].arguments) == json.dumps({"x": value})


def test_a_tool_whose_arguments_change_is_relearned() -> None:
    predictor = CallPredictor()
    for name in ("old", "new"):
        for _ in range(30):
            run = predictor.run()
            run.user("hello")
            run.calls([ToolCall("tool", {name: 1})])
    run = predictor.run()
    run.user("hello")
    guesses = {json.dumps(guess.arguments) for guess in run.guess()}
    assert json.dumps({"new": 1}) in guesses


def test_a_model_that_repeats_itself_stays_within_bounds() -> None:
    predictor = CallPredictor()
    run = predictor.run()
    for i in range(1_000):
        run.guess()
        run.calls([ToolCall("again", {"n": i % 2, "text": "x" * (i % 700)})])
        run.result("again", "y" * 5_000, error=True)
    assert memory_of(run._history, set()) < 400_000
    assert memory_of(predictor.model, set()) < LARGEST_STATE


def test_a_large_result_is_read_to_a_limit() -> None:
    predictor = CallPredictor()
    run = predictor.run()
    rows = [{"id": i, "name": "n" * 50, "tags": ["a", "b"]} for i in range(20_000)]
    run.result("rows", rows)
    run.result("text", "word " * 1_000_000)
    run.result("keys", {f"key{i}": {"v": i} for i in range(100_000)})
    run.user("word " * 1_000_000)
    assert memory_of(run._history, set()) < 1_000_000


def memory_of(value: Any, seen: set[int]) -> int:
    """Return the bytes of an object and of all that it refers to."""
    if id(value) in seen or callable(value):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, Mapping):
        return size + sum(memory_of(k, seen) + memory_of(v, seen) for k, v in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return size + sum(memory_of(item, seen) for item in value)
    if isinstance(value, str | bytes | bytearray | array | int | float):
        return size
    names = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())]
    members = [getattr(value, name) for name in names if hasattr(value, name)]
    return size + memory_of(getattr(value, "__dict__", None), seen) + memory_of(members, seen)


def test_the_state_stays_within_two_megabytes_on_input_that_never_repeats() -> None:
    chance = random.Random(1)
    predictor = CallPredictor()
    for _ in range(700):
        run = predictor.run(agent=str(chance.random()))
        run.user(" ".join(str(chance.randrange(10**9)) for _ in range(12)))
        for _ in range(6):
            tool = f"tool{chance.randrange(60)}"
            names = [f"a{chance.randrange(9)}" for _ in range(chance.randrange(5))]
            run.calls([ToolCall(tool, {name: str(chance.random()) for name in names})])
            run.result(tool, {f"r{i}": str(chance.random()) for i in range(6)})
    size = memory_of(predictor.model, set()) + memory_of(predictor.values, set())
    assert size < LARGEST_STATE


def test_a_run_that_calls_without_a_guess_learns_the_same() -> None:
    guessing, silent = trained(15), CallPredictor()
    for steps in support_runs(15):
        run = silent.run()
        for step in steps:
            if step.tool:
                run.calls([ToolCall(step.tool, step.arguments)])
                run.result(step.tool, step.result)
            else:
                run.user(step.text)
        run.calls([])
    assert silent.to_bytes() == guessing.to_bytes()
    play(silent.run(), next(support_runs(1, seed=9)))
