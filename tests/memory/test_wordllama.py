"""The default embedding model: no network, no odd numbers, no influence of the batch."""

from __future__ import annotations

import logging

import numpy as np

from memory.embedding.wordllama import DIMENSIONS, WordLlamaEmbedder

EMBEDDER = WordLlamaEmbedder()
TEXTS = ["cancel my reservation", "", "exchange the shoes for size 10", " ", "cancel the booking"]


def test_similar_texts_are_nearer() -> None:
    cancel, _, exchange, _, booking = EMBEDDER.embed(TEXTS)
    assert cancel @ booking > cancel @ exchange
    assert np.allclose([cancel @ cancel, exchange @ exchange], 1)


def test_a_text_without_tokens_is_zero_and_finite() -> None:
    assert not EMBEDDER.embed(["", "\ud800"])[0].any()
    assert np.isfinite(EMBEDDER.embed([*TEXTS, "\ud800", "\x00", "🤖" * 10])).all()
    assert EMBEDDER.embed([]).shape == (0, DIMENSIONS)


def test_the_batch_has_no_influence() -> None:
    together = EMBEDDER.embed([*TEXTS, "word " * 100_000])
    for text, vector in zip(TEXTS, together[:-1], strict=True):
        assert np.array_equal(EMBEDDER.embed([text])[0], vector)


def test_loading_leaves_logging_as_it_was() -> None:
    handlers = logging.getLogger().handlers[:]
    WordLlamaEmbedder().embed(["x"])
    assert logging.getLogger().handlers == handlers
