"""The default model: wordllama's token vectors, averaged; weights in the wheel, no network."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from memory.embedding.interface import MAX_CHARACTERS, EmbeddingUnavailable, Vectors

MODEL: Final = "wordllama-l2-supercat-256"
DIMENSIONS: Final = 256


class WordLlamaEmbedder:
    """Embeds texts by the mean of their tokens' vectors (wordllama, `l2_supercat`, 256).

    The model, 32 MB, is loaded at the first call.
    """

    model: Final = MODEL
    dimensions: Final = DIMENSIONS

    @cached_property
    def _inference(self) -> Any:
        try:
            return _load()
        except (ImportError, OSError, ValueError) as error:
            raise EmbeddingUnavailable(f"wordllama cannot be loaded: {error}") from error

    def embed(self, texts: Sequence[str], /) -> Vectors:
        """Return unit vectors, shape (texts, 256); 0 for a text without tokens."""
        if not texts:
            return np.zeros((0, DIMENSIONS), np.float32)
        # The library pads a batch to its longest text: one of 1 MB among 64 would take gigabytes.
        # Half surrogate pairs are legal in JSON and in str, and not in what the tokenizer reads.
        cut = [text[:MAX_CHARACTERS].encode(errors="replace").decode() for text in texts]
        by_length = sorted(range(len(cut)), key=lambda index: len(cut[index]))
        found: Vectors = np.empty((len(cut), DIMENSIONS), np.float32)
        found[by_length] = self._inference.embed([cut[index] for index in by_length])
        found[~np.isfinite(found).all(axis=1)] = 0  # the mean over no token
        length = np.linalg.norm(found, axis=1, keepdims=True)
        np.divide(found, length, out=found, where=length > 0)
        return found


def _load() -> Any:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    from wordllama import WordLlama, wordllama

    # Importing it calls logging.basicConfig(), which would add a handler to every application.
    root.handlers[:], root.level = handlers, level
    # Its tokenizer lies in a folder of the package in which it does not look, except as a cache.
    package = Path(wordllama.__file__).parent
    return WordLlama.load(dim=DIMENSIONS, cache_dir=package, disable_download=True)
