"""Writes a decision record as compact bytes, version 1.

The bytes are: the version; the distinct hashes of the record, 8 bytes each, in the order of their
first use; the distinct names of tools, as UTF-8; the fields of the record in their order. In the
fields a hash or a name is its place in these lists, and every length precedes what it counts.
Numbers are LEB128: 7 bits a byte, the lowest first. `record_reading` reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headstart.prediction.decision_record import (
    DecisionRecord,
    LearnedCall,
    LearnedLeaf,
    LearnedRanking,
)
from headstart.prediction.shared.record_limits import HASH_PARTS

VERSION: Final = 1
HASH_BYTES: Final = 8


def record_bytes(record: DecisionRecord) -> bytes:
    """Return a record as bytes. Raises `UnicodeEncodeError` for a name with surrogates."""
    fields = _Fields()
    fields.hashes(record.contexts)
    fields.hashes(record.words)
    fields.number(len(record.named))
    for tool, by_agent, by_user in record.named:
        fields.name(tool)
        fields.number(by_agent)
        fields.number(by_user)
    fields.name(record.symbol)
    fields.number(len(record.calls))
    for call in record.calls:
        _write_call(fields, call)
    fields.number(record.ranking is not None)
    if record.ranking is not None:
        _write_ranking(fields, record.ranking)
    fields.hashes(record.memory)
    fields.hashed(record.followed)
    return fields.to_bytes()


class _Fields:
    def __init__(self) -> None:
        self._hashes: dict[int, int] = {}
        self._names: dict[str, int] = {}
        self._body = bytearray()

    def number(self, number: int) -> None:
        _append_number(self._body, number)

    def hashed(self, value: int) -> None:
        self.number(self._hashes.setdefault(value, len(self._hashes)))

    def hashes(self, values: Sequence[int]) -> None:
        self.number(len(values))
        for value in values:
            self.hashed(value)

    def name(self, name: str) -> None:
        self.number(self._names.setdefault(name, len(self._names)))

    def to_bytes(self) -> bytes:
        head = bytearray((VERSION,))
        _append_number(head, len(self._hashes))
        for value in self._hashes:
            head += value.to_bytes(HASH_BYTES, "little")
        _append_number(head, len(self._names))
        for name in self._names:
            text = name.encode()
            _append_number(head, len(text))
            head += text
        return bytes(head + self._body)


def _append_number(target: bytearray, number: int) -> None:
    while number > 127:
        target.append(number & 127 | 128)
        number >>= 7
    target.append(number)


def _write_call(fields: _Fields, call: LearnedCall) -> None:
    fields.hashes(call.contexts)
    fields.hashed(call.skeleton)
    fields.number(len(call.leaves))
    for leaf in call.leaves:
        _write_leaf(fields, leaf)


def _write_leaf(fields: _Fields, leaf: LearnedLeaf) -> None:
    fields.hashed(leaf.leaf)
    fields.hashed(leaf.after)
    fields.number(len(leaf.offered))
    for templates, constant, flags in leaf.offered:
        fields.hashes(templates)
        fields.hashed(constant)
        fields.number(flags)
    fields.number(leaf.right + 1)
    fields.hashed(leaf.constant)
    fields.number(len(leaf.found))
    for spec in leaf.found:
        _write_spec(fields, spec)


def _write_spec(fields: _Fields, spec: Sequence[int]) -> None:
    kind = spec[0]
    fields.number(kind)
    hashes = HASH_PARTS[kind]
    for value in spec[1 : 1 + hashes]:
        fields.hashed(value)
    for pick in spec[1 + hashes :]:
        fields.number(pick)


def _write_ranking(fields: _Fields, ranking: LearnedRanking) -> None:
    fields.number(len(ranking.candidates))
    for each in ranking.candidates:
        fields.name(each.tool)
        fields.hashed(each.call)
        fields.number(each.probability)
        fields.number(each.tries)
        fields.number(each.repeated)
    fields.number(ranking.rest)
    fields.number(len(ranking.made))
    for place in ranking.made:
        fields.number(place)
