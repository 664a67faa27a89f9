"""Reads the values of a tool's result by path, up to a limit.

A path names keys and lists: `.flights*.number`. An object whose keys seem to be ids (all members
are objects, and a key contains a digit) is read like a list: its keys are values at `{}`.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from headstart.prediction.history.json_leaves import Key, value_key
from headstart.prediction.history.tokens import LONGEST_TOKEN, tokens
from headstart.prediction.stable_hash import Hash

MOST_VALUES: Final = 300
MOST_NODES: Final = 1_000
LONGEST_VALUE: Final = 1_000  # characters; longer texts are no value that is copied
DEEPEST: Final = 10
_MOST_TEXTS: Final = 24  # of an element, that a user may have named it by
_LONGEST_NAMING: Final = 80
_CONTAINERS: Final = (dict, list, tuple)


class ValuesAtPath:
    """The values at one path of a result, in order."""

    __slots__ = ("elements", "found", "keys", "list_hash")

    def __init__(self, list_hash: int) -> None:
        self.found: list[tuple[object, Key]] = []  # value and key
        self.keys: list[Key] = []
        self.elements: list[int] = []  # the object that each value is a member of
        self.list_hash = list_hash  # the innermost list on the path; 0 if there is none


class ResultValues:
    """What one result contains: values by the hash of their path, and the words of each object."""

    def __init__(self, result: object, hash_text: Hash) -> None:
        self.paths: dict[int, ValuesAtPath] = {}
        self._hash = hash_text
        self._texts: list[list[str]] = [[]]
        self._words: dict[int, frozenset[str]] = {}
        self._left = MOST_VALUES
        self._nodes = MOST_NODES
        if isinstance(result, dict | list | tuple):
            self._container(result, "", 0, 0, 0)
        elif not isinstance(result, str) or len(result) <= _LONGEST_NAMING:
            self._value(result, "$", 0, 0)

    def words(self, element: int) -> frozenset[str]:
        """Return the words, in lower case, of the texts of an object."""
        found = self._words.get(element)
        if found is None:
            texts = self._texts[element][:_MOST_TEXTS]
            found = frozenset(t.lower() for text in texts for t in tokens(text, LONGEST_TOKEN))
            self._words[element] = found
        return found

    def _container(
        self, value: object, path: str, element: int, list_hash: int, depth: int
    ) -> None:
        if depth > DEEPEST or self._left <= 0 or self._nodes <= 0:
            return
        self._nodes -= 1
        if isinstance(value, dict):
            self._object(value, path, element, list_hash, depth)
        elif isinstance(value, list | tuple):
            below = f"{path}*"
            list_hash = self._hash(below)
            for item in value[:MOST_VALUES]:
                if isinstance(item, _CONTAINERS):
                    self._container(item, below, 0, list_hash, depth + 1)
                else:
                    own = self._new_element([item] if isinstance(item, str) else [])
                    self._value(item, below, own, list_hash)
                if self._left <= 0 or self._nodes <= 0:
                    return

    def _object(
        self, members: dict[object, object], path: str, parent: int, list_hash: int, depth: int
    ) -> None:
        texts = [
            x for x in islice(members.values(), MOST_VALUES)
            if type(x) is str and len(x) < _LONGEST_NAMING
        ]  # fmt: skip
        self._texts[parent] += texts if parent else []
        element = self._new_element(texts)
        by_id = _keys_are_ids(members)
        below = f"{path}{{}}"
        inner = self._hash(below) if by_id else list_hash
        for n, (name, item) in enumerate(members.items()):
            if n >= MOST_VALUES or self._left <= 0 or self._nodes <= 0:
                return
            if not isinstance(name, str) or len(name) > LONGEST_TOKEN:
                continue
            if by_id:
                own = self._new_element([])
                self._value(name, below, own, inner)
                self._container(item, below, own, inner, depth + 1)
            elif isinstance(item, _CONTAINERS):
                self._container(item, f"{path}.{name}", element, inner, depth + 1)
            else:
                self._value(item, f"{path}.{name}", element, inner)

    def _new_element(self, texts: list[str]) -> int:
        self._texts.append(texts)
        return len(self._texts) - 1

    def _value(self, value: object, path: str, element: int, list_hash: int) -> None:
        self._nodes -= 1
        key = value_key(value)
        if key is None or value is None or (type(value) is str and len(value) > LONGEST_VALUE):
            return
        if type(key) is tuple and key[0] == "empty":
            return
        self._left -= 1
        hashed = self._hash(path)
        at = self.paths.get(hashed)
        if at is None:
            at = self.paths[hashed] = ValuesAtPath(list_hash)
        at.found.append((value, key))
        at.keys.append(key)
        at.elements.append(element)


def _keys_are_ids(members: dict[object, object]) -> bool:
    first = list(islice(members.items(), MOST_VALUES))
    return all(isinstance(item, dict) for _, item in first) and any(
        isinstance(name, str) and any(c.isdigit() for c in name[:LONGEST_TOKEN])
        for name, _ in first
    )
