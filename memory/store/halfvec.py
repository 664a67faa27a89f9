"""Reads vectors in the binary form of pgvector's halfvec."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def unpack_halfvec(raw: bytes) -> npt.NDArray[np.float32]:
    """Return a vector: after 4 bytes of head there are big-endian 16-bit floats."""
    return np.frombuffer(raw, dtype=">f2", offset=4).astype(np.float32)
