"""Chooses the words of a query that are worth searching: the rare ones of the tenant.

A frequent word finds most episodes of a tenant: all of them would be read to be ranked, though the
word hardly tells them apart.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from memory.retrieval.statements import statement

MOST_WORDS: Final = 32
MOST_TRIED: Final = 128
"""Words that are searched where the rare ones find too few: each costs, and the frequent most."""
ENOUGH_ROWS: Final = 400
"""Words are added until so many episodes are expected to have one of them."""
_SAMPLE: Final = 500
_KEPT_S: Final = 3_600
_MOST_TENANTS: Final = 500


class WordShares(NamedTuple):
    """How frequent words are in the queries of a tenant, from a sample."""

    episodes: int
    shares: Mapping[str, float]
    until: float
    """On the monotonic clock."""

    def expected(self, word: str) -> float:
        """Return about how many episodes have the word."""
        return self.episodes * self.shares.get(word, 0.5 / _SAMPLE)


def rare_words(words: Iterable[str], shares: WordShares, enough: int = ENOUGH_ROWS) -> list[str]:
    """Return the rarest words: as many as are expected to find `enough` episodes, at most 32."""
    chosen: list[str] = []
    found = 0.0
    for word in _by_rarity(words, shares)[:MOST_WORDS]:
        if chosen and found >= enough:
            break
        chosen.append(word)
        found += shares.expected(word)
    return chosen


def more_words(words: Iterable[str], rare: Sequence[str], shares: WordShares) -> list[str]:
    """Return the words to try where the `rare` ones find too few: these and others, at most 128.

    The rarest that the sample has come first: one that it lacks may be in no query at all.
    """
    others = _by_rarity(set(words) - set(rare), shares)
    others.sort(key=lambda word: word not in shares.shares)
    return [*rare, *others][:MOST_TRIED]


def _by_rarity(words: Iterable[str], shares: WordShares) -> list[str]:
    return sorted(set(words), key=lambda word: (shares.expected(word), -len(word), word))


def any_of(words: Sequence[str]) -> str:
    """Return the tsquery of texts that have one of the words, in Postgres' input form."""
    quoted = (word.replace("\\", "\\\\").replace("'", "''") for word in words)
    return " | ".join(f"'{word}'" for word in quoted)


class WordCounter:
    """Samples the words of each tenant once an hour, within a request of that tenant."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, WordShares] = OrderedDict()

    async def shares(self, connection: AsyncConnection[Any], tenant: str) -> WordShares:
        """Return the words of the tenant of this transaction."""
        known = self._known.get(tenant)
        if known is None or known.until < time.monotonic():
            known = self._known[tenant] = await _sample(connection, tenant)
        self._known.move_to_end(tenant)
        if len(self._known) > _MOST_TENANTS:
            self._known.popitem(last=False)
        return known


async def _sample(connection: AsyncConnection[Any], tenant: str) -> WordShares:
    which = {"tenant": tenant, "sample": _SAMPLE}
    counted = await (await connection.execute(statement("count_episodes"), which)).fetchone()
    found = await (await connection.execute(statement("word_shares"), which)).fetchall()
    episodes: int = counted[0] if counted else 0
    sampled = max(1, min(episodes, _SAMPLE))
    shares = {word: count / sampled for word, count in found}
    return WordShares(episodes, shares, time.monotonic() + _KEPT_S)
