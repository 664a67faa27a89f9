"""Templates: where the value of an argument may come from. They are hashes and small numbers only.

What a template gives is looked up in the run's history. Kinds, with the rest of the tuple:

- RESULT (tool, path, pick): a value of the last result of a tool
- ARGUMENT (tool, path): an argument of the last call of a tool
- SAME_NAME (name): the latest argument of this name, of any tool
- TOKEN (origin, shape, pick): a token of this shape of the last text of an origin
- AFTER_WORD (word ^ shape, origin): the token of this shape after a word
- AFTER_LEAF (path): the token after the value of another leaf of this call
- OTHER_LEAF (path): the value of another leaf of this call
- NEIGHBOUR (tool, path, leaf's path, its path): in the object from which another leaf's value is,
  the value at a path
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headstart.prediction.history.json_leaves import Key
from headstart.prediction.history.result_values import ResultValues, ValuesAtPath
from headstart.prediction.history.run_history import RunHistory

RESULT, ARGUMENT, SAME_NAME, TOKEN = 0, 1, 2, 3
AFTER_WORD, AFTER_LEAF, OTHER_LEAF, NEIGHBOUR = 4, 5, 6, 7
FIRST, LAST, UNUSED, NAMED = 0, 1, 2, 3
"""Picks: the first value; the last; the first that this leaf has not had yet; of those, the one of
the object that the user's words name best (of a token: the first whose first word the user used)"""
FIRST_DEPENDENT: Final = AFTER_LEAF
"""Kinds from here on depend on the leaves before it."""

Spec = tuple[int, ...]
Found = tuple[object, Key]
Chosen = Mapping[int, Found]
"""Values of the leaves before, by the hash of their path."""


def value_of(spec: Spec, run: RunHistory, leaf: int, chosen: Chosen) -> Found | None:
    """Return what a template gives for a leaf (`LeafPlace.any_index`) now, None for nothing."""
    kind = spec[0]
    if kind == RESULT:
        result = run.results.get(spec[1])
        at = result.paths.get(spec[2]) if result else None
        return _picked(at, spec[3], run, leaf, result) if at and result else None
    if kind == TOKEN:
        return _token(spec, run, leaf)
    if kind == ARGUMENT:
        arguments = run.arguments.get(spec[1])
        return arguments.get(spec[2]) if arguments else None
    if kind == SAME_NAME:
        return run.by_name.get(spec[1])
    if kind == AFTER_WORD:
        return after_word(spec, run)
    if kind == OTHER_LEAF:
        return chosen.get(spec[1])
    if kind == AFTER_LEAF:
        return _after_leaf(run, chosen.get(spec[1]))
    return _neighbour(spec, run, chosen.get(spec[3])) if kind == NEIGHBOUR else None


def _picked(
    at: ValuesAtPath, pick: int, run: RunHistory, leaf: int, result: ResultValues
) -> Found | None:
    if pick == UNUSED:
        used = run.used_at.get(leaf)
        if not used:
            return at.found[0]
        for i, key in enumerate(at.keys):
            if key not in used:
                return at.found[i]
        return None
    if pick == FIRST:
        return at.found[0]
    if pick == LAST:
        return at.found[-1]
    return named(at, run, leaf, result)


_MOST_NAMED: Final = 40


def named(at: ValuesAtPath, run: RunHistory, leaf: int, result: ResultValues) -> Found | None:
    """Return the value, not used yet, of the object that shares most words with the user."""
    used, vocabulary = run.used_at.get(leaf, {}), run.user_vocabulary
    best, most = None, 0.0
    for i, element in enumerate(at.elements[:_MOST_NAMED]):
        words = result.words(element)
        shared = len(words & vocabulary)
        if shared and shared * shared / (len(words) + 1) > most and at.keys[i] not in used:
            best, most = i, shared * shared / (len(words) + 1)
    return None if best is None else at.found[best]


def _token(spec: Spec, run: RunHistory, leaf: int) -> Found | None:
    _, origin, shape, pick = spec
    used = run.used_at.get(leaf, ()) if pick == UNUSED else ()
    vocabulary = run.user_vocabulary
    for text in run.texts:
        if text.origin != origin:
            continue
        same = text.by_shape.get(shape)
        if pick == FIRST:
            return same[0] if same else None
        for found in same or ():
            if found[1] not in used and (pick != NAMED or _first_word(found[0]) in vocabulary):
                return found
    return None


def _first_word(value: object) -> str:
    return value.split(" ")[0] if isinstance(value, str) else str(value)


def after_word(spec: Spec, run: RunHistory) -> Found | None:
    """Return what a template of kind AFTER_WORD gives now."""
    _, word_and_shape, origin = spec
    for followers in run.followers.get(origin, ()):
        if word_and_shape in followers:
            return followers[word_and_shape]
    return None


def _after_leaf(run: RunHistory, before: Found | None) -> Found | None:
    if before is None or not isinstance(before[0], str):
        return None
    for text in run.texts:
        found = text.next_token.get(before[0])
        if found is not None:
            return found, found
    return None


def _neighbour(spec: Spec, run: RunHistory, before: Found | None) -> Found | None:
    _, tool, path, _, other_path = spec
    result = run.results.get(tool)
    if before is None or result is None:
        return None
    at, other = result.paths.get(path), result.paths.get(other_path)
    if at is None or other is None or len(at.keys) != len(other.keys):
        return None
    try:
        i = other.keys.index(before[1])
    except ValueError:
        return None
    return at.found[i]
