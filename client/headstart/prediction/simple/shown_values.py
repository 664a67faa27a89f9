"""The values that a run has shown: in results, in arguments of calls, in the user's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headstart.prediction.simple.argument_leaves import ArgumentLeaf, any_index, as_key
from headstart.prediction.simple.text_tokens import shape, tokens, year_in

_MOST_VALUES: Final = 300
"""Values of one result that are looked at."""
_MOST_TEXT: Final = 80
"""Characters of a text result that is a value as a whole."""
_MOST_TOOLS: Final = 8
_MOST_MESSAGES: Final = 8
ALL: Final = "$"
"""The path of a result that is not an object or list."""

Values = dict[str, list[Any]]
"""Values of a result by their paths: `.flights*.date`; `*` any index, `{}` any key that is an id"""


class ShownValues:
    """What one run has shown, most recent first.

    `results`: values of the last result of each tool; `recent`: tools by their last result;
    `arguments`: of the last call of each tool; `messages`: tokens of the user's messages, and the
    same by shape; `used`: values that were arguments, by tool and path.
    """

    def __init__(self) -> None:
        self.results: dict[str, Values] = {}
        self.recent: list[str] = []
        self.arguments: dict[str, dict[str, Any]] = {}
        self.messages: list[tuple[list[str], dict[str, list[str]]]] = []
        self.used: dict[tuple[str, str], set[Any]] = {}
        self._year = "2024"

    def user(self, text: str) -> None:
        """Take in a message of the user."""
        self.read_year(text)
        found = tokens(text, self._year)
        by_shape: dict[str, list[str]] = {}
        for token in found:
            by_shape.setdefault(shape(token), []).append(token)
        self.messages.insert(0, (found, by_shape))
        del self.messages[_MOST_MESSAGES:]

    def read_year(self, text: str) -> None:
        """Take the year of later dates from a text that has one."""
        self._year = year_in(text) or self._year

    def result(self, tool: str, result: object, *, error: bool) -> None:
        """Take in what a call returned."""
        found: Values = {}
        if isinstance(result, Mapping | list | tuple):
            _collect(result, "", found, [0])
        elif isinstance(result, str):
            if len(result) <= _MOST_TEXT:
                found[ALL] = [result]
            if not error:
                self.read_year(result)
        elif result is not None:
            found[ALL] = [result]
        self.results[tool] = found
        self.recent = [tool, *(each for each in self.recent if each != tool)][:_MOST_TOOLS]

    def called(self, tool: str, leaves: Sequence[ArgumentLeaf]) -> None:
        """Take in a call."""
        self.arguments[tool] = {leaf.path: leaf.value for leaf in leaves}
        for leaf in leaves:
            self.used.setdefault((tool, any_index(leaf.path)), set()).add(as_key(leaf.value))


def _collect(value: Any, path: str, found: Values, count: list[int]) -> None:
    if count[0] > _MOST_VALUES:
        return
    if isinstance(value, Mapping):
        by_id = _keys_are_ids(value)
        inner = path + "{}"
        for key, each in value.items():
            if by_id:
                found.setdefault(inner, []).append(key)
            _collect_one(each, inner if by_id else f"{path}.{key}", found, count)
    else:
        for each in value:
            _collect_one(each, path + "*", found, count)


def _collect_one(value: Any, path: str, found: Values, count: list[int]) -> None:
    if isinstance(value, Mapping | list | tuple):
        _collect(value, path, found, count)
    elif value is not None:
        found.setdefault(path, []).append(value)
        count[0] += 1


def _keys_are_ids(value: Mapping[str, Any]) -> bool:
    """Return whether keys are ids: the members are objects, and some key has a digit."""
    return (
        bool(value)
        and all(isinstance(each, Mapping) for each in value.values())
        and any(character.isdigit() for key in value for character in key)
    )
