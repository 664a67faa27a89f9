"""Embeds queries, by the model whose vectors are stored, within a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from memory.embedding.interface import MAX_CHARACTERS, Embedder, EmbeddingUnavailable
from memory.retrieval.daemon_threads import DaemonThreads
from memory.store.vectors import DIMENSIONS

_THREADS: Final = 4


class VectorModel(NamedTuple):
    """The model whose vectors are searched, as the database names it."""

    id: int
    name: str
    dimensions: int


class QueryEmbedding:
    """Embeds texts in a few threads of its own: a slow endpoint cannot take more of them."""

    def __init__(self, embedders: Sequence[Embedder], timeout_s: float) -> None:
        self._embedders = {each.model: each for each in embedders}
        self._timeout_s = timeout_s
        self._threads = DaemonThreads(_THREADS, "headstart-embedding")

    async def load(self, timeout_s: float) -> None:
        """Let each model load, so that the first request need not wait; errors are its own."""
        await asyncio.gather(
            *(self._embed(each, "query", timeout_s) for each in self._embedders.values()),
            return_exceptions=True,
        )

    def close(self) -> None:
        """End the threads, without waiting for an endpoint."""
        self._threads.close()

    async def vector(self, text: str, model: VectorModel) -> npt.NDArray[np.float32] | None:
        """Return the text's vector; None if the model knows no word of it.

        Raises `EmbeddingUnavailable`.
        """
        embedder = self._embedders.get(model.name)
        if embedder is None:
            names = ", ".join(sorted(self._embedders)) or "none"
            raise EmbeddingUnavailable(
                f"the stored vectors are of the model {model.name}, which is not configured here "
                f"({names})"
            )
        vector = await self._embed(embedder, text[:MAX_CHARACTERS], self._timeout_s)
        if vector.shape != (model.dimensions,):
            raise EmbeddingUnavailable(
                f"the model {model.name} gave a vector of shape {vector.shape}, the stored ones "
                f"have {model.dimensions} dimensions"
            )
        if not np.isfinite(vector).all():
            raise EmbeddingUnavailable(f"the model {model.name} gave a vector with NaN or infinity")
        if not vector.astype(np.float16).any():
            return None
        return np.pad(vector, (0, DIMENSIONS - len(vector)))  # as the stored ones are

    async def _embed(
        self, embedder: Embedder, text: str, timeout_s: float
    ) -> npt.NDArray[np.float32]:
        try:
            async with asyncio.timeout(timeout_s):
                call = self._threads.submit(lambda: embedder.embed([text]))
                found = await asyncio.wrap_future(call)
            vector: npt.NDArray[np.float32] = np.asarray(found, dtype=np.float32)[0]
            return vector
        except TimeoutError:
            raise EmbeddingUnavailable(
                f"the model {embedder.model} did not answer within {timeout_s:g} s"
            ) from None
        except EmbeddingUnavailable:
            raise
        except Exception as error:  # an endpoint's client may raise anything
            raise EmbeddingUnavailable(f"the model {embedder.model} failed: {error}") from error
