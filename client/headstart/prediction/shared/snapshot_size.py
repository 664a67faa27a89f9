"""What a snapshot leaves out to be within its limit: what has been seen least.

The state is in tables of words, contexts of the next tool, contexts of whole calls, and templates
of arguments. Each step of `STEPS` keeps a share of each: the entries with most observations, among
equals those that were learned last. Words and contexts go first, because most were seen once and
guesses hardly need them; templates go last (docs/decisions/0029-shared-learning.md: measurements).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from headstart.prediction.argument_values.leaf_model import PLACES
from headstart.prediction.call_memory import followers_of
from headstart.prediction.next_tool.context_counts import ONE_COUNT, Counts, total_of
from headstart.prediction.next_tool.word_weights import largest_weight
from headstart.prediction.shared.record_limits import ROOT


class Shares(NamedTuple):
    """Which share of each table is kept; of templates: of those of each leaf."""

    words: float
    contexts: float
    memory: float
    templates: float


STEPS: Final = (
    Shares(1.0, 1.0, 1.0, 1.0), Shares(0.5, 0.6, 1.0, 1.0), Shares(0.25, 0.35, 1.0, 1.0),
    Shares(0.1, 0.25, 1.0, 1.0), Shares(0.1, 0.25, 1.0, 0.7), Shares(0.08, 0.15, 1.0, 0.6),
    Shares(0.06, 0.1, 0.9, 0.5), Shares(0.05, 0.08, 0.7, 0.5), Shares(0.03, 0.06, 0.5, 0.4),
    Shares(0.02, 0.05, 0.35, 0.35), Shares(0.01, 0.04, 0.25, 0.3), Shares(0.0, 0.03, 0.15, 0.25),
    Shares(0.0, 0.02, 0.05, 0.2), Shares(0.0, 0.02, 0.0, 0.1), Shares(0.0, 0.0, 0.0, 0.0),
)  # fmt: skip
"""Mild to severe; the first that is within the limit is served. The last has no learned tables."""


def reduced(parts: dict[str, Any], shares: Shares) -> dict[str, Any]:
    """Return the parts of a snapshot with a share of each table."""
    leaves, skeletons, flags = parts["arguments"]
    *numbers, contexts, words = parts["tools"]
    memory = _most(parts["memory"], shares.memory, _followed)
    followed = set(_followers(memory))
    nothing = not shares.templates
    return parts | {
        "tools": [
            *numbers, _most(contexts, shares.contexts, _seen),
            _most(words, shares.words, _weight),
        ],
        "arguments": [
            [] if nothing else [_with_templates(leaf, shares.templates) for leaf in leaves],
            [] if nothing else skeletons, flags,
        ],
        "memory": memory,
        "calls": _only(parts["calls"], followed),
        **({"constants": [[], []], "skeletons": [[], []]} if nothing else {}),
    }  # fmt: skip


def _with_templates(leaf: list[Any], share: float) -> list[Any]:
    """Return a leaf, as in `state_format`, with the templates that were right most often."""
    identity, specs, identities, numbers, after, *others = leaf
    if share == 1.0:
        return leaf
    kept = sorted(_highest(numbers[::3], share))
    return [
        identity,
        [specs[i] for i in kept],
        [identities[i] for i in kept],
        [number for i in kept for number in numbers[3 * i : 3 * i + 3]],
        b"".join([after[_AFTER * i : _AFTER * (i + 1)] for i in kept]),
        *others,
    ]


_AFTER: Final = 2 * PLACES  # bytes of each template
_OFTEN: Final = 32 * ONE_COUNT
Score = Callable[[int, Any], int]
"""How much an entry of a table is worth, from its key and value."""


def _highest(scores: list[float], share: float) -> set[int]:
    """Return the places of a share of scores: the highest, of equals the last ones."""
    places = sorted(range(len(scores)), key=lambda i: (-scores[i], -i))
    return set(places[: math.ceil(share * len(scores))])


def _most(table: list[Any], share: float, score: Score) -> list[Any]:
    weight, (old_keys, old_values), (keys, values) = table
    newer = set(keys)  # an old entry that was set again is not read any more
    current = [i for i, key in enumerate(old_keys) if key not in newer]
    old_keys, old_values = [old_keys[i] for i in current], [old_values[i] for i in current]
    entries = zip([*old_keys, *keys], [*old_values, *values], strict=True)
    kept = _highest([score(key, value) for key, value in entries], share)
    old = [i for i in range(len(old_keys)) if i in kept]
    young = [i for i in range(len(keys)) if i + len(old_keys) in kept]
    return [
        weight,
        [[old_keys[i] for i in old], [old_values[i] for i in old]],
        [[keys[i] for i in young], [values[i] for i in young]],
    ]


def _seen(context: int, counts: Counts) -> int:
    """Return how often a context was seen, to a limit, because counts fade; the root most."""
    return _OFTEN + 1 if context == ROOT else min(total_of(counts), _OFTEN)


def _followed(_context: int, value: int | bytes) -> int:
    return sum(followers_of(value).values())


def _weight(_word: int, packed: bytes) -> int:
    return largest_weight(packed)


def _followers(memory: list[Any]) -> Iterator[int]:
    for _, values in memory[1:]:
        for value in values:
            yield from followers_of(value)


def _only(calls: list[Any], followed: set[int]) -> list[Any]:
    places = [i for i, key in enumerate(calls[0]) if key in followed]
    return [[each[i] for i in places] for each in calls]
