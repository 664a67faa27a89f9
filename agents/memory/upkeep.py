"""Regular small work of the memory worker: judgements become usefulness, old retrievals go."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from psycopg import AsyncConnection

from agents.memory.busy_rows import BUSY
from memory.retrieval.journal import apply_judgements
from memory.store.policies import forget_retrievals, judged_tenants

JUDGE_S: Final = 10.0
"""How often judgements are applied."""
FORGET_S: Final = 3_600.0
"""How often old retrievals are looked for."""
RETRIEVALS_DAYS: Final = 30.0
FORGET_ROWS: Final = 5_000
"""Rows of retrievals that a step deletes."""
_OVERLAP_S: Final = 120.0
"""Judgements that were committed after a younger one was applied are looked at again."""
_ALL_S: Final = 10 * 365 * 86_400.0


class MemoryUpkeep:
    """Does one bounded statement a step. `retrievals_days`: how long retrievals are kept."""

    def __init__(
        self,
        retrievals_days: float = RETRIEVALS_DAYS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: monotonic, in seconds."""
        self.judged = 0
        """Episodes whose usefulness has changed."""
        self.forgotten = 0
        """Rows of retrievals that were deleted."""
        self._days, self._clock = retrievals_days, clock
        self._judge_at = self._forget_at = float("-inf")
        self._judged_to = float("-inf")
        self._tenants: list[str] = []

    def reset(self) -> None:
        """Look at all judgements again: a replica that took over may lack what they changed."""
        self._judge_at = self._judged_to = float("-inf")
        self._tenants = []

    async def step(self, connection: AsyncConnection[Any]) -> bool:
        """Do what is due; return whether it should go on at once. Raises psycopg's errors."""
        now = self._clock()
        if not self._tenants and now >= self._judge_at:
            within = min(_ALL_S, now - self._judged_to + _OVERLAP_S)
            self._tenants = list(await judged_tenants(connection, within))
            self._judged_to, self._judge_at = now, now + JUDGE_S
        if self._tenants:
            await self._judge(connection, self._tenants.pop())
            return True
        if now >= self._forget_at:
            gone = await forget_retrievals(connection, self._days, FORGET_ROWS)
            self.forgotten += gone
            if gone == FORGET_ROWS:
                return True
            self._forget_at = now + FORGET_S
        return False

    async def _judge(self, connection: AsyncConnection[Any], tenant: str) -> None:
        try:
            self.judged += await apply_judgements(connection, tenant)
        except BUSY:
            self._judged_to = self._judge_at = float("-inf")
