"""Finds the templates that would have given the value that an argument had."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from headstart.prediction.argument_values.argument_templates import (
    AFTER_LEAF,
    AFTER_WORD,
    ARGUMENT,
    FIRST,
    LAST,
    NAMED,
    NEIGHBOUR,
    OTHER_LEAF,
    RESULT,
    SAME_NAME,
    TOKEN,
    UNUSED,
    Chosen,
    Found,
    Spec,
    named,
    value_of,
)
from headstart.prediction.history.json_leaves import Key
from headstart.prediction.history.result_values import ResultValues, ValuesAtPath
from headstart.prediction.history.run_history import RunHistory
from headstart.prediction.history.skeletons import LeafPlace
from headstart.prediction.history.text_tokens import number_shape
from headstart.prediction.history.tokens import shape

_MOST_FOUND: Final = 14
_RESULTS_SEARCHED: Final = 4


def templates_for(found: Found, run: RunHistory, leaf: LeafPlace, chosen: Chosen) -> list[Spec]:
    """Return templates, the most specific kinds first, that give this value now."""
    value, key = found
    if value is None or (type(key) is tuple and key[0] == "empty"):
        return []
    specs = islice(_all(found, run, leaf, chosen), _MOST_FOUND)
    return list(dict.fromkeys(specs))


def _all(found: Found, run: RunHistory, leaf: LeafPlace, chosen: Chosen) -> Iterator[Spec]:
    key = found[1]
    yield from _in_results(key, run, leaf, chosen)
    for tool, arguments in run.arguments.items():
        for path, (_, other) in arguments.items():
            if other == key:
                yield ARGUMENT, tool, path
    same = run.by_name.get(leaf.name_hash)
    if same is not None and same[1] == key:
        yield SAME_NAME, leaf.name_hash
    for path, (_, other) in chosen.items():
        if other == key:
            yield OTHER_LEAF, path
    token = _token_of(key)
    if token is not None:
        yield from _in_texts(token, found, run, leaf, chosen)


def _token_of(key: Key) -> str | None:
    """Return the token of a text that is offered with this key."""
    if type(key) is tuple:
        return key[1] if key[0] == "float" else None
    return str(key)


def _in_results(key: Key, run: RunHistory, leaf: LeafPlace, chosen: Chosen) -> Iterator[Spec]:
    for tool in islice(reversed(run.results), _RESULTS_SEARCHED):
        result = run.results[tool]
        for path, at in result.paths.items():
            if key in at.keys:
                yield from _at_path(key, (tool, path), at, result, run, leaf)
                yield from _beside(key, (tool, path), at, result, chosen)


def _at_path(
    key: Key,
    place: tuple[int, int],
    at: ValuesAtPath,
    result: ResultValues,
    run: RunHistory,
    leaf: LeafPlace,
) -> Iterator[Spec]:
    for pick in (UNUSED, FIRST, LAST) if at.list_hash else (UNUSED, FIRST):
        spec = (RESULT, *place, pick)
        given = value_of(spec, run, leaf.any_index, {})
        if given is not None and given[1] == key:
            yield spec
    if len(at.keys) > 1:
        best = named(at, run, leaf.any_index, result)
        if best is not None and best[1] == key:
            yield (RESULT, *place, NAMED)


def _beside(
    key: Key, place: tuple[int, int], at: ValuesAtPath, result: ResultValues, chosen: Chosen
) -> Iterator[Spec]:
    if not at.list_hash or len(at.keys) < 2 or not chosen:
        return
    i = at.keys.index(key)
    beside = [
        (path, other)
        for path, other in result.paths.items()
        if other.list_hash == at.list_hash and len(other.keys) == len(at.keys) and other is not at
    ]
    for leaf_path, (value, chosen_key) in chosen.items():
        if value is None:
            continue
        for path, other in beside:
            if other.keys[i] == chosen_key and other.keys.index(chosen_key) == i:
                yield (NEIGHBOUR, *place, leaf_path, path)


def _in_texts(
    token: str, found: Found, run: RunHistory, leaf: LeafPlace, chosen: Chosen
) -> Iterator[Spec]:
    value, key = found
    is_text = isinstance(value, str)
    hashed = run.hash(shape(token)) if is_text else number_shape(value, run.hash)
    seen = set()
    for text in run.texts:
        if found not in text.by_shape.get(hashed, ()):
            continue
        if text.origin not in seen:
            seen.add(text.origin)
            for pick in (UNUSED, FIRST, NAMED):
                spec = (TOKEN, text.origin, hashed, pick)
                given = value_of(spec, run, leaf.any_index, {})
                if given is not None and given[1] == key:
                    yield spec
        i = text.tokens.index(token)
        if i:
            before = text.tokens[i - 1]
            yield AFTER_WORD, run.hash(before) ^ hashed, text.origin
            for path, (other, _) in chosen.items():
                if is_text and other == before:
                    yield AFTER_LEAF, path
