"""CRC-32C, by tables and by the processor's instruction, against aiokafka's."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from aiokafka.record.util import calc_crc32c
from llvmlite import binding
from numba import njit

from processing.records.columnar import words_in

DRAW = random.Random(3)


@pytest.fixture(scope="module")
def checksum(compiled: Any) -> Any:
    from kernels import crc32c  # not before: where it is kept has to be known

    return crc32c


@pytest.mark.parametrize("way", ["word_by_tables", "word_by_instruction"])
def test_word_by_word(checksum: Any, way: str) -> None:
    if way == "word_by_instruction" and not binding.get_host_cpu_features().get("sse4.2"):
        pytest.skip("this processor has no such instruction")
    word = getattr(checksum, way)

    @njit  # type: ignore[untyped-decorator]
    def over(words: Any) -> Any:
        value = np.uint64(0xFFFFFFFF)
        for each in words:
            value = word(value, each)
        return value ^ np.uint64(0xFFFFFFFF)

    for count in (0, 1, 2, 9, 1_000):
        data = DRAW.randbytes(8 * count)
        assert over(np.frombuffer(data, np.uint64)) == calc_crc32c(data)


def test_any_span(checksum: Any) -> None:
    of_span = checksum.crc32c

    @njit  # type: ignore[untyped-decorator]
    def over(words: Any, data: Any, begin: int, end: int) -> Any:
        return of_span(words, data, begin, end)

    data = np.frombuffer(DRAW.randbytes(400), np.uint8)
    for _span in range(300):
        begin, end = sorted(DRAW.choices(range(401), k=2))
        assert over(words_in(data), data, begin, end) == calc_crc32c(data[begin:end].tobytes())
