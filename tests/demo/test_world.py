"""Laws of the synthetic world: its truth is a distribution, its runs follow it, a seed fixes it."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo.synthetic_world import (
    HABITS,
    WORKFLOW_DOMAINS,
    WORKFLOW_TOOLS,
    Context,
    SyntheticRun,
    SyntheticWorld,
    synthetic_runs,
)
from demo.traces import END

SEEDS = st.integers(0, 2**32)
CONTEXTS: list[Context] = [
    (workflow_type, domain, user)
    for workflow_type, domains in WORKFLOW_DOMAINS.items()
    for domain in domains
    for user in HABITS
]


def first_runs(seed: int, runs: int, executor: int = 0, executors: int = 1) -> list[SyntheticRun]:
    return list(islice(synthetic_runs(seed, executor, executors, lambda: 0.0), runs))


def test_the_world_has_several_of_everything() -> None:
    assert len(WORKFLOW_DOMAINS) >= 3
    assert all(len(domains) >= 2 for domains in WORKFLOW_DOMAINS.values())
    assert WORKFLOW_DOMAINS.keys() == WORKFLOW_TOOLS.keys()
    assert len(HABITS) >= 3


@settings(max_examples=10)
@given(seed=SEEDS, drifted=st.booleans())
def test_every_row_is_a_distribution(seed: int, drifted: bool) -> None:
    world = SyntheticWorld(seed)
    for context in CONTEXTS:
        tools = WORKFLOW_TOOLS[context[0]]
        for previous in (None, *tools):
            row = world.row(context, previous, drifted)
            assert sum(row.values()) == pytest.approx(1)
            assert min(row.values()) >= 0
            assert row.keys() == {*tools, END} - {previous}


@settings(max_examples=10)
@given(seed=SEEDS)
def test_probabilities_do_not_depend_on_the_order_of_calls(seed: int) -> None:
    forth, back = SyntheticWorld(seed), SyntheticWorld(seed)
    asked = [(c, previous) for c in CONTEXTS[:6] for previous in (None, "find_user")]
    there = {(c, p): forth.row(c, p, False) for c, p in asked}
    assert there == {(c, p): back.row(c, p, False) for c, p in reversed(asked)}


@settings(max_examples=20)
@given(seed=SEEDS)
def test_a_seed_fixes_the_runs(seed: int) -> None:
    assert first_runs(seed, 20) == first_runs(seed, 20)
    assert first_runs(seed, 20) != first_runs(seed + 1, 20)


@settings(max_examples=20)
@given(seed=SEEDS, executors=st.integers(1, 5))
def test_executors_share_out_one_sequence_of_runs(seed: int, executors: int) -> None:
    shares = [first_runs(seed, 4, e, executors) for e in range(executors)]
    together = sorted((r for share in shares for r in share), key=lambda r: int(r.task_id))
    assert together == first_runs(seed, 4 * executors)


@settings(max_examples=30)
@given(seed=SEEDS)
def test_many_contexts_appear_soon(seed: int) -> None:
    runs = first_runs(seed, 30)
    paths = {
        path
        for r in runs
        for path in (
            (r.workflow_type,),
            (r.workflow_type, r.domain),
            (r.workflow_type, r.domain, r.user),
        )
    }
    assert len(paths) >= 10
    assert {r.workflow_type for r in runs} == set(WORKFLOW_DOMAINS)
    assert all(r.steps for r in runs)


def test_the_runs_follow_the_true_probabilities() -> None:
    """What followed the commonest tool of one context, against the truth: within 4 sigma."""
    world = SyntheticWorld(11)
    followed: dict[tuple[Context, str | None], Counter[str]] = {}
    for number in range(6_000):
        run = world.draw_run(number, drifted=False)
        tools = [step.tool for step in run.steps]
        for previous, tool in zip((None, *tools), (*tools, END), strict=True):
            key = ((run.workflow_type, run.domain, run.user), previous)
            followed.setdefault(key, Counter())[tool] += 1
    (context, previous), seen = max(followed.items(), key=lambda item: item[1].total())
    assert seen.total() > 500
    for tool in world.row(context, previous, False):
        truth = world.true_probability(context, previous, tool, False)
        sigma = (truth * (1 - truth) / seen.total()) ** 0.5
        assert seen[tool] / seen.total() == pytest.approx(truth, abs=4 * sigma + 1e-12)


def test_users_differ_from_their_domain_by_their_habit() -> None:
    world = SyntheticWorld(3)
    rows = [world.row(("refund", "retail", user), "get_order", False) for user in HABITS]
    assert all(a != b for a in rows for b in rows if a is not b)


@settings(max_examples=10)
@given(seed=SEEDS, drift_at=st.floats(0, 1))
def test_the_drift_depends_on_progress(seed: int, drift_at: float) -> None:
    progress = [n / 10 for n in range(11)]
    runs = islice(synthetic_runs(seed, 0, 1, iter(progress).__next__, drift_at), len(progress))
    assert [r.drifted for r in runs] == [p >= drift_at for p in progress]


@settings(max_examples=10)
@given(seed=SEEDS)
def test_a_drift_changes_the_chains(seed: int) -> None:
    world = SyntheticWorld(seed)
    for context in CONTEXTS:
        assert world.row(context, "find_user", False) != world.row(context, "find_user", True)


def test_an_unknown_tool_is_impossible() -> None:
    assert SyntheticWorld(1).true_probability(CONTEXTS[0], None, "no_such_tool", False) == 0.0


@pytest.mark.parametrize(("executor", "executors"), [(-1, 2), (2, 2), (0, 0)])
def test_an_executor_that_does_not_exist_is_refused(executor: int, executors: int) -> None:
    with pytest.raises(ValueError, match="executor"):
        next(synthetic_runs(1, executor, executors, lambda: 0.0))
