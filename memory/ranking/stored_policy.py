"""A stored version of a tenant's policy: what ranks a request, and whether anything is shown."""

from __future__ import annotations

from typing import Final, NamedTuple

from memory.ranking.policy import CasePolicy, RankedPool, by_similarity
from memory.ranking.pool import Pool
from memory.ranking.standing import Standing

FIRST_RUNS: Final = 64
"""Finished runs of the first version, and the fewest of a later one."""
MOST_RUNS: Final = 512
"""The most runs of a version; between both, a quarter of those learned so far."""


class StoredPolicy(NamedTuple):
    """The newest version of a tenant's policy. `policy` None: it is refused, similarity ranks."""

    version: int
    policy: CasePolicy | None
    standing: Standing

    def helps(self, kind: str) -> bool:
        """Return whether cases of a workflow type are worth showing."""
        return self.standing.helps(kind, policy=self.policy is not None)

    def ranked(self, pool: Pool) -> RankedPool:
        """Return the cases that vote, best first."""
        return self.policy.ranked(pool) if self.policy else by_similarity(pool)


NO_VERSION: Final = StoredPolicy(0, None, Standing())
"""What ranks before the first version: similarity, and always something is shown."""


def runs_of_next(learned: int) -> int:
    """Return how many runs the next version learns: a function of those so far, so that versions
    do not depend on when they are trained."""
    return min(MOST_RUNS, max(FIRST_RUNS, learned // 4))
