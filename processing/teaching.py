"""Contexts learn from a stretch of outcomes at once, by compiled code, where one rule is all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from learners.policy import Policy
from processing.chains import Chain, Context
from processing.lessons import STAKES_RATE


def only_policy(chains: Sequence[Chain]) -> Policy | None:
    """Return the policy that learns in every context of some chains; None: there are several."""
    policy = chains[0].groups[0][0]
    for chain in chains:
        if len(chain.groups) > 1 or chain.groups[0][0] is not policy:
            return None
    return policy


def teach(
    rule: Any, rows: Any, numbers: Any, chains: Sequence[Chain], places: Any, compiled: Any
) -> None:
    """Have the contexts of chains learn what `Lessons` has them learn, to the bit.

    `rule`: the policy of all of them, compiled; `rows` and `numbers`: of outcomes in order, as in a
    `Scan`; `places`: of each, which chain it is told. Nothing that a context was told may wait.
    """
    columns = (
        *(rows[:, column] for column in (compiled.FLAGS, compiled.AT)),
        *(numbers[:, column] for column in (compiled.CONFIDENCE, compiled.GAIN, compiled.COST)),
    )
    for level in range(max(len(chain.contexts) for chain in chains)):
        known: dict[Context, int] = {}
        of_chain = [
            known.setdefault(chain.contexts[level], len(known))
            if level < len(chain.contexts)
            else -1
            for chain in chains
        ]
        whose = np.array(of_chain, np.int16)[places]
        order = np.argsort(whose, kind="stable")
        begins = np.searchsorted(whose[order], np.arange(len(known) + 1))
        _learn(rule, begins, order, columns, list(known), compiled)


def _learn(
    rule: Any, begins: Any, order: Any, columns: Any, contexts: Sequence[Context], compiled: Any
) -> None:
    states = np.array([context.state for context in contexts])
    stakes = np.array([(context.gain, context.cost) for context in contexts])
    newest = np.array([context.at for context in contexts])
    compiled.teach(rule, STAKES_RATE, begins, order, *columns, states, stakes, newest)
    for context, state, (gain, cost), at in zip(
        contexts, states.tolist(), stakes.tolist(), newest.tolist(), strict=True
    ):
        context.state, context.gain, context.cost, context.at = tuple(state), gain, cost, at
