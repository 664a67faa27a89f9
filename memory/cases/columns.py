"""A column of numbers that grows by one row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class GrowingColumn:
    """An array whose first axis grows; appending takes constant time on average."""

    def __init__(self, kind: npt.DTypeLike, width: int | None = None) -> None:
        self._shape = () if width is None else (width,)
        self._rows: npt.NDArray[Any] = np.zeros((64, *self._shape), kind)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> npt.NDArray[Any]:
        """The rows so far: a view, which the next `append` may leave behind."""
        return self._rows[: self._size]

    def append(self, row: Any) -> None:
        """Add a row."""
        if self._size == len(self._rows):
            grown = np.zeros((2 * self._size, *self._shape), self._rows.dtype)
            grown[: self._size] = self._rows
            self._rows = grown
        self._rows[self._size] = row
        self._size += 1
