"""Faults of a user's predictor are named with its code, and with the run that it was given."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from replay.evaluation.evaluation import EvaluationPlan, evaluate
from replay.evaluation.latencies import DECLARED
from replay.evaluation.predictor_fault import PredictorFault
from replay.evaluation.runs_file import read_recorded_runs
from tests.replay.recorded_runs import shop_runs, write_runs

MODULES = count()
Fault = Callable[..., str]


@pytest.fixture
def fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fault:
    """Return the message for a module with this code, with the module's name as `own`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    file = write_runs(tmp_path / "runs.jsonl", list(shop_runs(4)))

    def message(code: str, processes: int = 1) -> str:
        name = f"own_{next(MODULES)}"
        Path(f"{name}.py").write_text(code)
        plan = EvaluationPlan(file, (f"{name}:guess",), (0,), DECLARED, (0.5,), frozenset())
        with pytest.raises((PredictorFault, LookupError)) as caught:
            evaluate(plan, read_recorded_runs(file).runs, lambda _: None, processes)
        return str(caught.value).replace(name, "own")

    return message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("history.results['get_user']", " raised KeyError('get_user') at own.py:2"),
        (
            "history.results.get('x')[0]",
            " raised TypeError(\"'NoneType' object is not subscriptable\") at own.py:2",
        ),
        ("_inner()", " raised ValueError('boom') at own.py:5"),
        ("exit()", " raised SystemExit(None)"),
        ("('x', {})", ": a predictor returned ('x', {}); return a list of guesses"),
        ("[('x',)]", ": a predictor returned the guess ('x',); return PredictedCall"),
        ("5", ": a predictor returned 5; return a list of guesses"),
        ("[('x', {'a': object})]", ": a predictor guessed arguments of x that are not JSON"),
    ],
)
def test_what_a_function_does_wrong_is_named(fault: Fault, body: str, message: str) -> None:
    code = (
        f"def guess(history):\n    return {body}\n\ndef _inner():\n    raise ValueError('boom')\n"
    )
    found = fault(code)
    assert found.startswith(f"own:guess{message}")
    assert found.endswith(", decision point 1)")


def test_the_run_is_named_by_its_place_in_the_file(fault: Fault) -> None:
    code = (
        "def guess(history):\n"
        "    if history.user_id or 'mia_li_1002' in history.last_user_message:\n"
        "        if history.results:\n"
        "            raise ValueError('boom')\n"
    )
    where = "own:guess raised ValueError('boom') at own.py:4 (run 3, decision point 2)"
    assert fault(code) == where
    assert fault(code, processes=2) == where


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import nothing_there\n", "own:guess raised ModuleNotFoundError(\"No module named "
         "'nothing_there'\") at own.py:1"),
        ("\ndef guess(:\n", "own:guess raised SyntaxError("),
        ("import os\nos.nothing\n", "own:guess raised AttributeError("),
        ("raise SystemExit(3)\n", "own:guess raised SystemExit(3) at own.py:1"),
        ("x = 1\n", "module 'own' has no 'guess'"),
        ("class guess:\n    def run(self): pass\n    def __init__(self, x): pass\n",
         "own:guess raised TypeError("),
        ("class guess:\n    def run(self, agent, user_id): return self\n",
         "own:guess raised AttributeError("),
    ],
)  # fmt: skip
def test_what_a_module_does_wrong_is_named(fault: Fault, code: str, message: str) -> None:
    assert fault(code).startswith(message)


@pytest.mark.parametrize(
    ("guesses", "more", "message"),
    [
        ("['x']", "", ": a predictor returned 'x'; return a list of PredictedCall (run "),
        ("1 / 0", "", " raised ZeroDivisionError('division by zero') at own.py:9 (run "),
        (
            "[]",
            "self.left = (each for each in ())",
            ": its state cannot be pickled (cannot pickle ",
        ),
    ],
)
def test_what_a_class_does_wrong_is_named(
    fault: Fault, guesses: str, more: str, message: str
) -> None:
    code = (
        "class guess:\n"
        "    def __init__(self):\n"
        f"        {more or 'pass'}\n"
        "    def run(self, agent, user_id): return self\n"
        "    def user(self, text): pass\n"
        "    def said(self, text): pass\n"
        "    def result(self, tool, result, error=False): pass\n"
        "    def guess(self, limit=3):\n"
        f"        return {guesses}\n"
        "    def calls(self, calls): pass\n"
    )
    assert fault(code).startswith(f"own:guess{message}")
