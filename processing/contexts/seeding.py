"""Gives contexts the state that a seed record states."""

from __future__ import annotations

from learners.policy import Policy, State, spec
from processing.contexts.cache import ContextCache
from processing.control.learned_defaults import state_in_context
from processing.control.learner_assignments import named_policy
from processing.state.clock import PartitionClock
from processing.state.counters import seeded
from topics.control.messages import Seed, Seeded


def seed_contexts(
    cache: ContextCache, clock: PartitionClock, idle_ms: int, seed: Seed, offset: int
) -> None:
    """Set contexts to their seeded states. Raises `ValueError`, with nothing changed.

    A context is no younger than its parent, which has to exist or to be seeded before it.
    """
    cache.apply_pending()
    states = []
    for index, each in enumerate(seed.contexts):
        policy = cache.policy_of(seed.tenant, each.path)
        state = seeded_state(each, policy)
        _check_parent(cache, seed, index)
        states.append((policy, state))
    for each, (policy, state) in zip(seed.contexts, states, strict=True):
        parent = cache.known(seed.tenant, _parent_of(each.path))
        context = cache.context(seed.tenant, each.path, policy, parent)
        numbers = context.changing()
        numbers.state = state
        numbers.counts = seeded(each.outcomes, each.speculated, each.hits, each.counts)
        if each.counts:
            numbers.gain, numbers.cost = each.gain, each.cost
        newest = _newest_outcome(each.at, seed.at, clock, idle_ms)
        if parent is not None:
            newest = min(newest, parent.numbers.at)
        numbers.at = newest if clock.is_ahead(numbers.at) else max(numbers.at, newest)
        cache.touch_context(context, offset)


def seeded_state(seed: Seeded, policy: Policy) -> State:
    """Return the state of a context to be seeded, where `policy` learns. Raises `ValueError`."""
    state = state_in_context(seed.path, seed)
    seeded(seed.outcomes, seed.speculated, seed.hits, seed.counts)
    if (named := named_policy(seed.learner)) is None or named.name != policy.name:
        raise ValueError(
            f"learner: {seed.path} is learned by {spec(policy)} here, not {seed.learner}; "
            "choose it first: headstart learner choose"
        )
    return state


def _check_parent(cache: ContextCache, seed: Seed, index: int) -> None:
    """Raise `ValueError` where the parent of a seeded context neither exists nor comes before."""
    path = seed.contexts[index].path
    parent = _parent_of(path)
    if not parent or any(each.path == parent for each in seed.contexts[:index]):
        return
    if cache.known(seed.tenant, parent) is None:
        raise ValueError(f"path: {parent} is not there, which is above {path}")


def _parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def _newest_outcome(stated: int | None, at: int, clock: PartitionClock, idle_ms: int) -> int:
    """Return the time (Unix ms) of a seeded context's newest outcome.

    The present, where the seed states none or one so old that the context would be idle at once;
    at most the end of the clock's tick.
    """
    now = clock.now(at)
    if stated is None or stated <= now - idle_ms:
        return now
    return min(stated, clock.latest(at))
