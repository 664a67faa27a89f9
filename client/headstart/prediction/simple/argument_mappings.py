"""Learns where the arguments of a tool come from, and fills them in.

A mapping is a place where the value of an argument was found before: a path in an earlier result,
an argument of an earlier call, a word of the user's, a constant. For each argument the one that was
right most often is used. Mappings and their statistics: PASTE (arXiv 2603.18897).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from headstart.prediction.interface import ToolCall
from headstart.prediction.simple.argument_leaves import (
    MOST_LEAVES,
    ArgumentLeaf,
    ArgumentSkeleton,
    any_index,
    as_key,
    filled,
    leaves_of,
    skeleton_of,
)
from headstart.prediction.simple.shown_values import ShownValues
from headstart.prediction.simple.text_tokens import shape

_MOST_MAPPINGS: Final = 24
_MOST_NEW: Final = 10
_MOST_SKELETONS: Final = 24
_MOST_ARGUMENTS: Final = 4096
_TOOLS_SEARCHED: Final = 4
_RESULT, _ARGUMENT, _WORD, _CONSTANT, _UNUSED = range(5)


class ValueSource(NamedTuple):
    """Where a value comes from.

    `kind` _RESULT: the value at `position` of `path` in the last result of `tool`; _UNUSED: the
    first there that was no argument yet; _ARGUMENT: the argument `path` of the last call of `tool`;
    _WORD: the first word of the shape `path` in the user's last message; _CONSTANT: `value`.
    """

    kind: int
    tool: str = ""
    path: str = ""
    position: int = 0
    value: Any = None


class FilledArguments(NamedTuple):
    """Arguments, how likely each is right (their product), and the tries behind the weakest."""

    arguments: Mapping[str, object]
    probability: float
    tries: int


class ArgumentMappings:
    """The mappings of all tools. `unused`: whether to try the first value not used yet, too."""

    def __init__(self, *, unused: bool = False) -> None:
        self._unused = unused
        self._mappings: dict[tuple[str, str], dict[ValueSource, list[int]]] = {}
        """Of each argument (tool, path) the sources with (right, tried)."""
        self._constants: dict[tuple[str, str], dict[Any, Any]] = {}
        self._skeletons: dict[str, dict[tuple[str, ...], tuple[list[int], ArgumentSkeleton]]] = {}

    def guess(self, shown: ShownValues, tool: str) -> FilledArguments | None:
        """Return the likeliest arguments of a tool; None if one of them cannot be filled in."""
        known = self._skeletons.get(tool)
        if not known:
            return None
        paths = max(sorted(known), key=lambda each: known[each][0][0])
        count, skeleton = known[paths]
        values, probability, tries = [], 1.0, count[0]
        for path in paths:
            best, share, tried = None, -1.0, 0
            for source, (right, n) in self._mappings.get((tool, path), {}).items():
                if n and right / (n + 1) > share:
                    value = self._value(shown, source, tool, path)
                    if value is not None:
                        best, share, tried = value, right / (n + 1), n
            if best is None or not share:
                return None
            values.append(best)
            probability *= share
            tries = min(tries, tried)
        return FilledArguments(filled(skeleton.shape, iter(values)), probability, tries)

    def learn(self, shown: ShownValues, call: ToolCall) -> list[ArgumentLeaf]:
        """Learn from a call; return its leaves, none if they are too many."""
        leaves = leaves_of(call.arguments)
        if len(leaves) > MOST_LEAVES:
            return []
        self._count_skeleton(call, leaves)
        for path, value in leaves:
            self._learn_leaf(shown, call.tool, path, value)
        return leaves

    def _count_skeleton(self, call: ToolCall, leaves: list[ArgumentLeaf]) -> None:
        skeleton = skeleton_of(call.arguments, leaves)
        known = self._skeletons.setdefault(call.tool, {})
        found = known.get(skeleton.paths)
        if found is not None:
            found[0][0] += 1
        elif len(known) < _MOST_SKELETONS:
            known[skeleton.paths] = ([1], skeleton)

    def _learn_leaf(self, shown: ShownValues, tool: str, path: str, value: Any) -> None:
        mappings = self._mappings.get((tool, path))
        if mappings is None:
            if len(self._mappings) >= _MOST_ARGUMENTS:
                del self._mappings[next(iter(self._mappings))]
            mappings = self._mappings[tool, path] = {}
        for source, counts in mappings.items():
            offered = self._value(shown, source, tool, path)
            if offered is not None:
                counts[1] += 1
                counts[0] += type(offered) is type(value) and offered == value
        for source in self._sources(shown, tool, path, value):
            if source not in mappings and len(mappings) < _MOST_MAPPINGS:
                mappings[source] = [1, 1]

    def _value(self, shown: ShownValues, source: ValueSource, tool: str, path: str) -> Any:
        """Return the value that a source has now; None if there is none."""
        kind = source.kind
        if kind == _CONSTANT:
            return source.value[1]
        if kind == _ARGUMENT:
            return shown.arguments.get(source.tool, {}).get(source.path)
        if kind == _WORD:
            words = shown.messages[0][1].get(source.path) if shown.messages else None
            return words[0] if words else None
        values = shown.results.get(source.tool, {}).get(source.path)
        if not values:
            return None
        if kind == _UNUSED:
            used = shown.used.get((tool, any_index(path)), ())
            return next((each for each in values if as_key(each) not in used), None)
        index = source.position
        return values[index] if -len(values) <= index < len(values) else None

    def _sources(self, shown: ShownValues, tool: str, path: str, value: Any) -> list[ValueSource]:
        """Return the places where a value can be found now."""
        found = list(self._in_results(shown, tool, path, value))
        for called, arguments in shown.arguments.items():
            found += [
                ValueSource(_ARGUMENT, called, place)
                for place, each in arguments.items()
                if type(each) is type(value) and each == value
            ]
        if isinstance(value, str) and any(value in words for words, _ in shown.messages):
            found.append(ValueSource(_WORD, path=shape(value)))
        if not isinstance(value, dict | list) and value is not None:
            # With its type, since 1 == True.
            found.append(ValueSource(_CONSTANT, value=(type(value).__name__, value)))
        return found[:_MOST_NEW]

    def _in_results(
        self, shown: ShownValues, tool: str, path: str, value: Any
    ) -> Iterator[ValueSource]:
        used = shown.used.get((tool, any_index(path)), ()) if self._unused else ()
        for returned in shown.recent[:_TOOLS_SEARCHED]:
            for place, values in shown.results[returned].items():
                if value not in values:
                    continue
                index = values.index(value)
                if type(values[index]) is not type(value):
                    continue
                if self._unused and all(as_key(each) in used for each in values[:index]):
                    yield ValueSource(_UNUSED, returned, place)
                last = -1 if values[-1] == value else 0
                yield ValueSource(_RESULT, returned, place, index if index < 4 else last)
