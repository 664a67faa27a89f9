"""One text that a run has seen, by what an argument may be copied by: shape, or the word before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from headstart.prediction.history.json_leaves import Key, value_key
from headstart.prediction.history.tokens import number_in, shape
from headstart.prediction.stable_hash import Hash

_INTEGER: Final = "\0integer"
_DECIMAL: Final = "\0decimal"


def number_shape(value: object, hash_text: Hash) -> int:
    """Return the hash of the shape of a token that is offered as a JSON number."""
    return hash_text(_INTEGER if isinstance(value, int) else _DECIMAL)


@lru_cache(maxsize=4_096)
def _shape_hash(token: str, hash_text: Hash) -> int:
    return hash_text(shape(token))


class TextTokens:
    """The tokens of a text. `origin` is a hash of what wrote it: user, agent, or a tool.

    A number is there as a token, and as a JSON number of a shape of its own.
    """

    __slots__ = ("_after", "_hash", "by_shape", "next_token", "numbers", "origin", "shapes",
                 "tokens")  # fmt: skip

    def __init__(self, origin: int, tokens: Sequence[str], hash_text: Hash) -> None:
        self.origin = origin
        self.tokens = tokens
        self.shapes = [_shape_hash(token, hash_text) for token in tokens]
        self.by_shape: dict[int, list[tuple[object, Key]]] = {}
        self.numbers: dict[str, tuple[int, object, Key]] = {}
        """By token: the hash of the shape, the number, and its key."""
        self.next_token: dict[str, str] = {}
        self._after: dict[int, tuple[object, Key]] | None = None
        self._hash = hash_text
        before = None
        for token, hashed in zip(tokens, self.shapes, strict=True):
            same = self.by_shape.get(hashed)
            if same is None:
                self.by_shape[hashed] = [(token, token)]
            else:
                same.append((token, token))
            value = number_in(token)
            if value is not None:
                self._add_number(token, value)
            if before is not None and before not in self.next_token:
                self.next_token[before] = token
            before = token

    def _add_number(self, token: str, value: int | float) -> None:
        key, hashed = value_key(value), number_shape(value, self._hash)
        if key is not None:
            self.numbers[token] = hashed, value, key
            self.by_shape.setdefault(hashed, []).append((value, key))

    @property
    def after(self) -> dict[int, tuple[object, Key]]:
        """The token after each word, twice, by the hash of the word ^ that of the token's shape."""
        known = self._after
        if known is None:
            known = self._after = {}
            hash_text, before = self._hash, None
            for token, shape_hash in zip(self.tokens, self.shapes, strict=True):
                if before is not None:
                    known.setdefault(before ^ shape_hash, (token, token))
                    if token in self.numbers:
                        number_hash, value, key = self.numbers[token]
                        known.setdefault(before ^ number_hash, (value, key))
                before = hash_text(token)
        return known
