"""Fills in the vectors that are missing: after a failure of the embedder, or of a new model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from agents.memory.assembling import StepTarget
from memory.store.vectors import (
    EmbeddedText,
    EmbeddingModel,
    activate,
    count_missing,
    missing_texts,
    put_vectors,
)

log = structlog.get_logger()

AT_ONCE: Final = 256
"""Texts of one step; after a failure half as many, for a model that is slow."""
_SAY_EVERY: Final = 20
"""Steps between two messages of progress."""


class VectorFilling:
    """Goes through all episodes once, in the order of their keys; `begin` starts it again."""

    def __init__(self, model: EmbeddingModel) -> None:
        self._model = model
        self._after: tuple[str, int] | None = ("", 0)
        self._steps = 0
        self._at_once = AT_ONCE
        self.missing = 0
        """Episodes without a vector of the model, when last counted."""

    @property
    def running(self) -> bool:
        """Whether there may be something to do."""
        return self._after is not None

    def begin(self) -> None:
        """Start again, unless it is running: episodes were stored without vectors."""
        if self._after is None:
            self._after = ("", 0)

    async def step(self, target: StepTarget) -> bool:
        """Fill in some vectors; return whether it should go on at once."""
        if self._after is None or not target.embedder.usable:
            return False
        if self._steps % _SAY_EVERY == 0:
            await self._count(target)
        self._steps += 1
        async with target.connection.transaction():
            texts = await missing_texts(
                target.connection, self._model.id, self._after, self._at_once
            )
            if texts:
                vectors = await target.embedder.embed([each.text for each in texts])
                if vectors is None:
                    self._failed(texts)
                    return False
                await put_vectors(target.connection, texts, vectors, self._model.id)
        if texts:
            self._after = texts[-1].tenant, texts[-1].episode
            self._at_once = min(AT_ONCE, 2 * self._at_once)
            return True
        await self._finish(target)
        return False

    def _failed(self, texts: Sequence[EmbeddedText]) -> None:
        """Try fewer next; one text that fails alone waits for the next time through all."""
        if len(texts) == 1:
            self._after = texts[0].tenant, texts[0].episode
        self._at_once = max(1, len(texts) // 2)

    async def _count(self, target: StepTarget) -> None:
        self.missing, wanted = await count_missing(target.connection, self._model.id)
        if self.missing:
            log.info(
                "memory.filling", model=target.embedder.embedder.model, missing=self.missing,
                of=wanted,
            )  # fmt: skip

    async def _finish(self, target: StepTarget) -> None:
        """Have queries use the model if nothing is missing any more; else begin again later."""
        await self._count(target)
        self._steps = 0
        self._after = ("", 0) if self.missing else None
        if not self.missing and self._model.state == "filling":
            await activate(target.connection, self._model.id)
            self._model = self._model._replace(state="active")
            log.info("memory.model_active", model=target.embedder.embedder.model)
