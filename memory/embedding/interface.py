"""What the memory needs of an embedding model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
"""Shape (texts, dimensions); each row has length 1, or is 0 where its text has no token."""


MAX_CHARACTERS: Final = 8_000
"""Characters of a text that are embedded: as many as an episode keeps of its query."""


class EmbeddingUnavailable(Exception):
    """The model cannot be reached or loaded, or its answer is unusable; the message names why."""


class Embedder(Protocol):
    """Embeds texts. Equal texts have equal vectors, whatever else is in the batch."""

    @property
    def model(self) -> str:
        """Id of the model, stored with every vector: vectors of two models are not compared."""

    @property
    def dimensions(self) -> int:
        """Length of a vector."""

    def embed(self, texts: Sequence[str], /) -> Vectors:
        """Return one row for each text. Blocks; raises `EmbeddingUnavailable`."""
