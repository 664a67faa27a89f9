"""Kernel: contexts learn and count many outcomes at once.

Compiled from the learners' own source: the `step` of EMA and TD, and HOPS' update of a level.
"""

# ruff: noqa: ARG001, PLR0913, PLR0917 - compiled: branches are flat, overloads alike

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import astuple, fields
from functools import lru_cache
from types import FunctionType
from typing import Any, Final

import numpy as np
from numba.extending import overload

from headstart.calibration import FAMILIAR
from kernels.json_tokens import OPTIONS, inlined, kept
from kernels.layout import AT, CONFIDENCE, COST, EXECUTION, FLAGS, GAIN, LARGEST_MS
from learners import hops_update
from learners.ema import Ema
from learners.hops import Hops
from learners.hops_update import TOP, features, total, update_level
from learners.policy import Policy, moving_average
from learners.td import Td
from processing.state.counters import CORRECT, LARGEST_COUNT, SPECULATED, SUGGESTED, VERDICT
from processing.state.packed_state import AT as OF_AT
from processing.state.packed_state import CONFIDENCE as OF_CONFIDENCE
from processing.state.packed_state import COST as OF_COST
from processing.state.packed_state import EXECUTED as OF_EXECUTED
from processing.state.packed_state import EXECUTION as OF_EXECUTION
from processing.state.packed_state import (
    EXPLICIT,
    EXPLICIT_RIGHT,
    SPECULATE,
    SPECULATIVE,
    SPECULATIVE_RIGHT,
    SUGGEST,
    SUGGESTION,
    SUGGESTION_RIGHT,
)
from processing.state.packed_state import GAIN as OF_GAIN
from processing.state.packed_state import SAVED as OF_SAVED
from processing.state.packed_state import STATE as OF_STATE
from processing.state.packed_state import WASTED as OF_WASTED


def compiled(function: Callable[..., Any]) -> Any:
    """Return a function compiled, together with those that it calls."""
    assert isinstance(function, FunctionType)
    scope = dict(function.__globals__)
    for name in function.__code__.co_names:
        if isinstance(scope.get(name), FunctionType):
            scope[name] = compiled(scope[name])
    return inlined(FunctionType(function.__code__, scope, function.__name__))


_ema, _td, _averaged = compiled(Ema.step), compiled(Td.step), compiled(moving_average)
_features, _update_level, _total = compiled(features), compiled(update_level), compiled(total)
_hops_answer = compiled(hops_update.answer)


def _tuple(policy: Any, *more: str) -> Any:
    """Return a named tuple type for a policy's parameters, and more."""
    return namedtuple(f"{policy.__name__}Rule", [*(each.name for each in fields(policy)), *more])


EmaRule, TdRule, HopsRule = _tuple(Ema), _tuple(Td), _tuple(Hops, "fading")
RULES: Final[dict[type, Callable[..., Any]]] = {
    Ema: lambda policy: EmaRule(*_numbers(policy)),
    Td: lambda policy: TdRule(*_numbers(policy)),
    Hops: lambda policy: HopsRule(*_numbers(policy), policy.fading),
}
"""The compiled policies, and how their parameters are passed."""


def _numbers(policy: Any) -> tuple[float, ...]:
    return tuple(map(float, astuple(policy)))


@lru_cache
def rule_of(policy: Policy) -> Any:
    """Return a policy's parameters as the kernel takes them; None: it is not compiled."""
    rule = RULES.get(type(policy))
    return None if rule is None else rule(policy)


def step(rule: Any, state: Any, at: int, correct: bool, target: float, low: float) -> None:
    """Update the state of one threshold, from `at` on in `state`, by an outcome."""
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


def learn(
    rule: Any, states: Any, path: Any, depth: int, confidence: float, correct: bool,
    gain: float, cost: float,
) -> None:  # fmt: skip
    """Update the contexts of a path, its first `depth` numbers, coarse to fine, by an outcome."""
    raise NotImplementedError


@overload(learn, inline="always", jit_options=OPTIONS)
def _learn(
    rule: Any, states: Any, path: Any, depth: int, confidence: float, correct: bool,
    gain: float, cost: float,
) -> Any:  # fmt: skip
    def independent(
        rule: Any, states: Any, path: Any, depth: int, confidence: float, correct: bool,
        gain: float, cost: float,
    ) -> None:  # fmt: skip
        half = states.shape[1] // 2
        for level in range(depth):
            state = states[path[level]]
            if confidence >= state[0]:
                step(rule, state, 0, correct, rule.target, rule.min)
            elif confidence >= state[half]:
                step(rule, state, half, correct, rule.suggest_target, rule.suggest_min)

    def hierarchical(
        rule: Any, states: Any, path: Any, depth: int, confidence: float, correct: bool,
        gain: float, cost: float,
    ) -> None:  # fmt: skip
        x, y = _features(confidence, gain, cost), 1.0 if correct else 0.0
        h = 1.0 / (1.0 + states[path[depth - 1], 1] / FAMILIAR)
        cold = states[path[0], 11], states[path[0], 12]
        above, drifted = TOP, False
        for level in range(depth):
            state = states[path[level]]
            own, drifted = _update_level(
                rule, state_tuple(state), above, (x, y, gain, cost), h, cold, drifted
            )
            for index in range(len(own)):
                state[index] = own[index]
            cold, above = (own[11], own[12]), _total(own)

    return hierarchical if rule.instance_class is HopsRule else independent


def answer(rule: Any, state: Any) -> tuple[float, float]:
    """Return the thresholds of a state: `speculate` and `suggest`."""
    raise NotImplementedError


@overload(answer, inline="always", jit_options=OPTIONS)
def _answer(rule: Any, state: Any) -> Any:
    def independent(rule: Any, state: Any) -> tuple[float, float]:
        return state[0], min(state[state.size // 2], state[0])

    def hierarchical(rule: Any, state: Any) -> tuple[float, float]:
        return _hops_answer(state_tuple(state))

    return hierarchical if rule.instance_class is HopsRule else independent


@inlined
def state_tuple(s: Any) -> Any:
    """Return a state of HOPS as a tuple."""
    return (
        s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11], s[12], s[13],
        s[14], s[15], s[16], s[17],
    )  # fmt: skip


@inlined
def count(words: Any, flags: int, numbers: Any) -> None:
    """Count an outcome in a context, as `processing.state.counters` does."""
    correct, speculated = flags & CORRECT > 0, flags & SPECULATED > 0
    if speculated:
        mode, right = SPECULATIVE, SPECULATIVE_RIGHT
    elif flags & SUGGESTED > 0:
        mode, right = SUGGESTION, SUGGESTION_RIGHT
    else:
        mode, right = EXPLICIT, EXPLICIT_RIGHT
    add(words, mode, 1)
    if correct:
        add(words, right, 1)
    add(words, OF_CONFIDENCE, np.int64(numbers[CONFIDENCE] * 1e6))
    if numbers[EXECUTION] > 0.0:
        add(words, OF_EXECUTED, 1)
        add(words, OF_EXECUTION, np.int64(min(numbers[EXECUTION], 1e12) * 1000.0))
    if speculated:
        if correct:
            add(words, OF_SAVED, np.int64(numbers[GAIN] * 1000.0))
        else:
            add(words, OF_WASTED, np.int64(numbers[COST] * 1000.0))


@inlined
def add(words: Any, which: int, more: int) -> None:
    """Add to a counter, which saturates at 63 bits."""
    left = LARGEST_COUNT - words[which]
    words[which] += more if more <= left else left


@inlined
def known(floats: Any, path: Any, depth: int, which: int, stated: float) -> float:
    """Return a gain or cost; where none is stated, the average of the finest context with one."""
    if stated <= 0.0:
        for level in range(depth - 1, -1, -1):
            if floats[path[level], which] > 0.0:
                return floats[path[level], which]
        return 0.0
    return stated


@kept
def teach(
    rule: Any, weights: Any, rate: float, path_of: Any, paths: Any, rows: Any, numbers: Any,
    words: Any, floats: Any,
) -> None:  # fmt: skip
    """Let contexts learn outcomes in order, count them, and derive their thresholds.

    `weights`: of success, latency and cost, as in `processing.config`; `rate`: of the moving
    averages of gain and cost; `path_of`: the number of each outcome's path; `paths`: for each the
    numbers of its contexts, coarse to fine, padded with -1; `rows` and `numbers`: of each outcome,
    as in a `ScannedBatch`. Changes in place `words` and `floats`, two views of one array with a row
    for each context, as in `processing.state.packed_state`.
    """
    states = floats[:, OF_STATE:]
    for event in range(path_of.size):
        path, flags, of = paths[path_of[event]], rows[event, FLAGS], numbers[event]
        depth = paths.shape[1]
        while path[depth - 1] < 0:
            depth -= 1
        correct = flags & CORRECT > 0
        gain = known(floats, path, depth, OF_GAIN, of[GAIN])
        cost = known(floats, path, depth, OF_COST, of[COST])
        price = min(weights[2] * cost + weights[0] * gain, LARGEST_MS)
        gain = min(weights[1] * gain, LARGEST_MS)
        learn(rule, states, path, depth, of[CONFIDENCE], correct, gain, price)
        for level in range(depth):
            context = path[level]
            words[context, OF_AT] = max(words[context, OF_AT], rows[event, AT])
            which, stated = (OF_GAIN, of[GAIN]) if correct else (OF_COST, of[COST])
            floats[context, which] = _averaged(floats[context, which], stated, rate)
            if flags & VERDICT == 0:
                count(words[context], flags, of)
    for context in range(states.shape[0]):
        of = floats[context]
        of[SPECULATE], of[SUGGEST] = answer(rule, states[context])
