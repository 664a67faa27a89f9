"""The rows of the highest scores, without sorting all of them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from memory.ranking.bank import Rows

_FEW: Final = 4
"""Of fewer rows, times those wanted, sorting all is as fast."""


def best_rows(scores: npt.NDArray[Any], rows: Rows, count: int) -> Rows:
    """Return the `count` rows of the highest scores, the best first; of equals as in `rows`."""
    of = -scores[rows]
    if len(rows) > _FEW * count:  # the last ones cannot be among the best
        some = np.flatnonzero(of <= np.partition(of, count - 1)[count - 1])
        rows, of = rows[some], of[some]
    found: Rows = rows[np.argsort(of, kind="stable")[:count]]
    return found
