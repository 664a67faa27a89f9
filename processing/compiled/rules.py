"""Compiled: what contexts with a rule learn of many outcomes at once.

The rule is the learner's own source: its `step` is compiled as it stands.
"""

# ruff: noqa: ARG001, PLR0913, PLR0917 - compiled: branches are flat, overloads alike

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import astuple, fields
from types import FunctionType
from typing import Any, Final

from numba.extending import overload

from learners.ema import Ema
from learners.policy import Policy
from learners.td import Td
from processing.compiled.fields import CORRECT
from processing.compiled.text import OPTIONS, inlined, kept


def compiled(function: Callable[..., Any]) -> Any:
    """Return a function compiled, with those of its module that it calls."""
    assert isinstance(function, FunctionType)
    scope = dict(function.__globals__)
    for name in function.__code__.co_names:
        if isinstance(scope.get(name), FunctionType):
            scope[name] = compiled(scope[name])
    return inlined(FunctionType(function.__code__, scope, function.__name__))


_ema, _td = compiled(Ema.step), compiled(Td.step)
EmaRule: Any = namedtuple("EmaRule", [field.name for field in fields(Ema)])  # type: ignore[misc]
TdRule: Any = namedtuple("TdRule", [field.name for field in fields(Td)])  # type: ignore[misc]
RULES: Final[dict[type, Any]] = {Ema: EmaRule, Td: TdRule}
"""The policies that are compiled, and how their parameters are handed over."""


def rule_of(policy: Policy) -> Any:
    """Return a policy as the compiled code takes it; None: it does not know this one."""
    rule = RULES.get(type(policy))
    return None if rule is None else rule._make(map(float, astuple(policy)))  # type: ignore[call-overload]


def step(rule: Any, state: Any, at: int, correct: bool, target: float, low: float) -> None:
    """Have what a rule keeps for one threshold, from `at` on in `state`, take in an outcome."""
    raise NotImplementedError


@overload(step, inline="always", jit_options=OPTIONS)
def _step(rule: Any, state: Any, at: int, correct: bool, target: float, low: float) -> Any:
    def ema(rule: Any, state: Any, at: int, correct: bool, target: float, low: float) -> None:
        state[at], state[at + 1], state[at + 2], state[at + 3] = _ema(
            rule, (state[at], state[at + 1], state[at + 2], state[at + 3]), correct, target, low
        )

    def td(rule: Any, state: Any, at: int, correct: bool, target: float, low: float) -> None:
        state[at], state[at + 1] = _td(rule, (state[at], state[at + 1]), correct, target, low)

    return ema if rule.instance_class is EmaRule else td


@inlined
def averaged(average: float, value: float, rate: float) -> float:
    """Return a moving average after a value; only what is above 0 says anything."""
    if value <= 0.0:
        return average
    return average + rate * (value - average) if average != 0.0 else value


@kept
def teach(
    rule: Any, rate: float, begins: Any, order: Any, flags: Any, at: Any, confidence: Any,
    gain: Any, cost: Any, states: Any, stakes: Any, newest: Any,
) -> None:  # fmt: skip
    """Have contexts learn, each from the outcomes whose places stand in `order` from its begin on.

    `rate`: of the moving averages of gain and cost. In place: `states`, a row for each context;
    `stakes`, its average gain and cost; `newest`, its newest outcome, Unix ms.
    """
    half = states.shape[1] // 2
    for context in range(begins.size - 1):
        state = states[context]
        for place in range(begins[context], begins[context + 1]):
            event = order[place]
            correct = flags[event] & CORRECT > 0
            newest[context] = max(newest[context], at[event])
            if correct:
                stakes[context, 0] = averaged(stakes[context, 0], gain[event], rate)
            else:
                stakes[context, 1] = averaged(stakes[context, 1], cost[event], rate)
            if confidence[event] >= state[0]:
                step(rule, state, 0, correct, rule.target, rule.min)
            elif confidence[event] >= state[half]:
                step(rule, state, half, correct, rule.suggest_target, rule.suggest_min)
