"""Embeds texts without letting the model hold up or fail what is stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import structlog

from memory.embedding.interface import Embedder, EmbeddingUnavailable, Vectors

log = structlog.get_logger()

PATIENCE_S: Final = 15.0
"""How long one call may take: a transaction is open meanwhile."""
RETRY_S: Final = 15.0
"""After a failure nothing is embedded for so long; what is stored meanwhile is filled in later."""


class GuardedEmbedder:
    """An embedder that answers None while it cannot be used; see `why` then."""

    def __init__(
        self,
        embedder: Embedder,
        clock: Callable[[], float] = time.monotonic,
        retry_s: float = RETRY_S,
    ) -> None:
        """`clock`: monotonic, in seconds."""
        self.embedder = embedder
        self.failures = 0
        self.why = ""
        """Why it cannot be used; empty: it can."""
        self._clock, self._retry_s, self._again_at = clock, retry_s, 0.0

    @property
    def usable(self) -> bool:
        """Whether a call is worth trying."""
        return not self.why or self._clock() >= self._again_at

    async def embed(self, texts: Sequence[str]) -> Vectors | None:
        """Return a vector of each text, all finite and of the model's dimensions; None: not now."""
        if not self.usable:
            return None
        try:
            async with asyncio.timeout(PATIENCE_S):
                vectors = await asyncio.to_thread(self.embedder.embed, texts)
            self._check(vectors, len(texts))
        except (EmbeddingUnavailable, TimeoutError) as error:
            self.refused(str(error) or f"no answer within {PATIENCE_S:.0f} s")
            return None
        if self.why:
            log.info("embedding.available", model=self.embedder.model)
        self.why = ""
        return vectors

    def refused(self, why: str) -> None:
        """Note that it cannot be used; it is tried again later."""
        if not self.why:
            log.warning("embedding.unavailable", model=self.embedder.model, reason=why)
        self.failures += 1
        self.why, self._again_at = why, self._clock() + self._retry_s

    def _check(self, vectors: Vectors, count: int) -> None:
        wanted = (count, self.embedder.dimensions)
        if vectors.shape != wanted:
            raise EmbeddingUnavailable(
                f"the model answered with the shape {vectors.shape} in place of {wanted}"
            )
        if not np.isfinite(vectors).all():
            raise EmbeddingUnavailable("the model answered with numbers that are not finite")
