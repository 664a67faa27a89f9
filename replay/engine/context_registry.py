"""Numbers the contexts of one partition, and knows which of them have had an outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from replay.predictions.blocks import Chain, FirstOutcome


class ContextRegistry:
    """Contexts by number. `most`: how many are distinguished; the rest count as their parent."""

    def __init__(self, most: int) -> None:
        self.places: list[tuple[str, str]] = []
        """Tenant and path of each number."""
        self.beyond = 0
        """Predictions of contexts beyond the limit."""
        self._most = most
        self._numbers: dict[tuple[str, str], int] = {}
        self._has_outcome: list[bool] = []

    def __len__(self) -> int:
        return len(self.places)

    def chain(self, tenant: str, paths: Sequence[str]) -> Chain:
        """Return the numbers of paths, coarse to fine; at least one."""
        numbers: list[int] = []
        for path in paths:
            number = self._numbers.get((tenant, path))
            if number is None:
                if len(self.places) >= self._most and numbers:
                    self.beyond += 1
                    break
                number = self._numbers[tenant, path] = len(self.places)
                self.places.append((tenant, path))
                self._has_outcome.append(False)
            numbers.append(number)
        return tuple(numbers)

    def finest_known(self, chain: Chain) -> int:
        """Return the finest context that has had an outcome; the coarsest where none has."""
        for context in reversed(chain):
            if self._has_outcome[context]:
                return context
        return chain[0]

    def add_outcome(self, chain: Chain, place: int) -> Iterator[FirstOutcome]:
        """Yield the contexts of a chain that have their first outcome, at a place of the block."""
        if self._has_outcome[chain[-1]]:
            return
        parent = -1
        for context in chain:
            if not self._has_outcome[context]:
                self._has_outcome[context] = True
                yield FirstOutcome(place, parent, context)
            parent = context

    def matching(self, holds: Callable[[str, str], bool]) -> list[int]:
        """Return the contexts with an outcome that a predicate of tenant and path holds for."""
        return [n for n, place in enumerate(self.places) if self._has_outcome[n] and holds(*place)]

    def reset(self, contexts: Sequence[int]) -> None:
        """Have contexts begin again with their next outcome."""
        for context in contexts:
            self._has_outcome[context] = False
