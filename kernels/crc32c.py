"""Kernel: CRC-32C (Castagnoli, RFC 3720 B.4), by the processor's instruction where it has one."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from kernels.json_tokens import inlined


def _tables() -> Any:
    """Return the lookup tables for eight bytes at a time."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _bit in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        tables[0, byte] = value
    for table in range(1, 8):
        before = tables[table - 1]
        tables[table] = before >> 8 ^ tables[0][before & 0xFF]
    return tables


TABLES: Final = _tables()


@inlined
def word_by_tables(value: Any, word: Any) -> Any:
    """Return a checksum, not yet inverted, extended by eight bytes, the lowest first.

    "Slicing by 8", Kounavis & Berry.
    """
    value, low = value ^ word, np.uint64(0xFF)
    return np.uint64(
        TABLES[7, value & low] ^ TABLES[6, value >> np.uint64(8) & low]
        ^ TABLES[5, value >> np.uint64(16) & low] ^ TABLES[4, value >> np.uint64(24) & low]
        ^ TABLES[3, value >> np.uint64(32) & low] ^ TABLES[2, value >> np.uint64(40) & low]
        ^ TABLES[1, value >> np.uint64(48) & low] ^ TABLES[0, value >> np.uint64(56)]
    )  # fmt: skip


@intrinsic
def word_by_instruction(_typing: Any, _value: Any, _word: Any) -> Any:
    """Return the same, by x86's CRC32 instruction (SSE 4.2)."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        kind, name = ir.FunctionType(word, [word, word]), "llvm.x86.sse42.crc32.64.64"
        instruction = builder.module.declare_intrinsic(name, fnty=kind)
        return builder.call(instruction, arguments)

    return types.uint64(types.uint64, types.uint64), generate


_has_instruction = binding.get_host_cpu_features().get("sse4.2", False)
_word: Any = word_by_instruction if _has_instruction else word_by_tables


@inlined
def crc32c(words: Any, data: Any, begin: int, end: int) -> Any:
    """Return the checksum of a span.

    `words`: at each index of `data` the eight bytes from there on, the lowest first.
    """
    value, at, low = np.uint64(0xFFFFFFFF), begin, np.uint64(0xFF)
    while at + 8 <= end:
        value = _word(value, words[at])
        at += 8
    while at < end:
        value = np.uint64(TABLES[0, (value ^ np.uint64(data[at])) & low]) ^ value >> np.uint64(8)
        at += 1
    return value ^ np.uint64(0xFFFFFFFF)
