"""Reads the compact bytes of a decision record, and checks every field before it is learned.

A record may come from any process that can write to the topic. What passes here can be learned
without an error, in time and memory that are bounded by `record_limits`.
"""

from __future__ import annotations

from collections.abc import Sequence

from headstart.prediction.decision_record import (
    Candidate,
    DecisionRecord,
    LearnedCall,
    LearnedLeaf,
    LearnedRanking,
    Offered,
)
from headstart.prediction.shared import record_limits as limits
from headstart.prediction.shared.invalid_decision import InvalidDecision
from headstart.prediction.shared.record_writing import HASH_BYTES, VERSION
from headstart.prediction.stable_hash import MASK


def read_record(data: bytes) -> DecisionRecord:
    """Return the record that `record_bytes()` wrote. Raises `InvalidDecision`."""
    if len(data) > limits.LARGEST_RECORD:
        raise InvalidDecision(
            f"the record has {len(data)} bytes, more than {limits.LARGEST_RECORD}"
        )
    if not data or data[0] != VERSION:
        version = data[0] if data else "none"
        raise InvalidDecision(
            f"the record has version {version}, known is {VERSION}; upgrade the workers first"
        )
    fields = _Fields(data)
    record = _record(fields)
    if fields.left:
        raise InvalidDecision(f"{fields.left} bytes follow the record")
    return record


class _Fields:
    """The fields in their order; every method checks what it reads."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 1
        self._hashes = [self._next_hash() for _ in range(self.count("hashes", len(data)))]
        self._names = [self._next_name() for _ in range(self.count("names", len(data)))]

    @property
    def left(self) -> int:
        """Bytes that were not read."""
        return len(self._data) - self._at

    def number(self, what: str, highest: int, lowest: int = 0) -> int:
        """Return a number within bounds."""
        number = shift = 0
        while True:
            if self._at >= len(self._data):
                raise InvalidDecision(f"the record ends within {what}")
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 63:
                raise InvalidDecision(f"{what}: the number is too long")
        if not lowest <= number <= highest:
            raise InvalidDecision(f"{what} is {number}, not {lowest} to {highest}")
        return number

    def count(self, what: str, most: int, least: int = 0) -> int:
        """Return the length of a list."""
        return self.number(f"the number of {what}", most, least)

    def hashed(self, what: str) -> int:
        """Return a hash."""
        return self._hashes[self.number(what, len(self._hashes) - 1)]

    def hashes(self, what: str, most: int, least: int = 0) -> tuple[int, ...]:
        """Return a list of hashes."""
        return tuple([self.hashed(what) for _ in range(self.count(what, most, least))])

    def name(self, what: str) -> str:
        """Return the name of a tool."""
        return self._names[self.number(what, len(self._names) - 1)]

    def _bytes(self, count: int, what: str) -> bytes:
        if count > self.left:
            raise InvalidDecision(f"the record ends within {what}")
        self._at += count
        return self._data[self._at - count : self._at]

    def _next_hash(self) -> int:
        value = int.from_bytes(self._bytes(HASH_BYTES, "hashes"), "little")
        if value > MASK:
            raise InvalidDecision(f"the hash {value} has more than 60 bits")
        return value

    def _next_name(self) -> str:
        size = self.number("the length of a name", 4 * limits.LONGEST_NAME)
        try:
            name = self._bytes(size, "names").decode()
        except UnicodeDecodeError as error:
            raise InvalidDecision(f"a name is not UTF-8: {error}") from error
        if len(name) > limits.LONGEST_NAME:
            raise InvalidDecision(f"a name has more than {limits.LONGEST_NAME} characters")
        return name


def _record(fields: _Fields) -> DecisionRecord:
    contexts = fields.hashes("contexts", limits.CONTEXTS, limits.CONTEXTS)
    if contexts[0] != limits.ROOT or limits.ROOT in contexts[1:]:
        raise InvalidDecision(f"contexts: the first, and only the first, is {limits.ROOT}")
    words = fields.hashes("words", limits.MOST_WORDS)
    named = tuple([_named(fields) for _ in range(fields.count("named", limits.MOST_NAMED))])
    symbol = fields.name("symbol")
    calls = tuple([_call(fields) for _ in range(fields.count("calls", limits.MOST_CALLS))])
    ranking = _ranking(fields) if fields.number("whether a ranking follows", 1) else None
    memory = fields.hashes("memory", limits.MOST_MEMORY)
    return DecisionRecord(
        contexts, words, named, symbol, calls, ranking, memory, fields.hashed("followed")
    )


def _named(fields: _Fields) -> tuple[str, int, int]:
    name = fields.name("named")
    by_agent = fields.number("a share of a name", limits.LARGEST_SHARE)
    return name, by_agent, fields.number("a share of a name", limits.LARGEST_SHARE)


def _call(fields: _Fields) -> LearnedCall:
    contexts = fields.hashes("contexts of a call", limits.CALL_CONTEXTS, limits.CALL_CONTEXTS)
    skeleton = fields.hashed("skeleton")
    count = fields.count("leaves", limits.MOST_LEAF_RECORDS)
    return LearnedCall(contexts, skeleton, tuple([_leaf(fields) for _ in range(count)]))


def _leaf(fields: _Fields) -> LearnedLeaf:
    leaf, after = fields.hashed("leaf"), fields.hashed("after")
    offered = tuple([
        _offered(fields) for _ in range(fields.count("values on offer", limits.MOST_OFFERED))
    ])  # fmt: skip
    _check_distinct("templates", [each for templates, _, _ in offered for each in templates])
    _check_distinct("constants", [constant for _, constant, _ in offered if constant])
    right = fields.number("right", len(offered)) - 1
    constant = fields.hashed("constant")
    found = tuple([_spec(fields) for _ in range(fields.count("found", limits.MOST_FOUND))])
    return LearnedLeaf(leaf, after, offered, right, constant, found)


def _offered(fields: _Fields) -> Offered:
    templates = fields.hashes("templates", limits.MOST_OFFERED)
    constant = fields.hashed("a constant on offer")
    return templates, constant, fields.number("flags", limits.LARGEST_FLAGS)


def _spec(fields: _Fields) -> tuple[int, ...]:
    kind = fields.number("the kind of a template", max(limits.HASH_PARTS))
    parts = [fields.hashed("a template") for _ in range(limits.HASH_PARTS[kind])]
    if kind in limits.HAS_PICK:
        parts.append(fields.number("a pick", limits.LARGEST_PICK))
    return (kind, *parts)


def _ranking(fields: _Fields) -> LearnedRanking:
    count = fields.count("candidates", limits.MOST_CANDIDATES, 1)
    candidates = tuple([_candidate(fields) for _ in range(count)])
    _check_distinct("calls of candidates", [each.call for each in candidates])
    rest = fields.number("the probability of no candidate", limits.LARGEST_PROBABILITY)
    made = [fields.number("made", count - 1) for _ in range(fields.count("calls made", count))]
    _check_distinct("calls made", made)
    return LearnedRanking(candidates, rest, tuple(made))


def _candidate(fields: _Fields) -> Candidate:
    tool, call = fields.name("the tool of a candidate"), fields.hashed("the call of a candidate")
    probability = fields.number("a probability", limits.LARGEST_PROBABILITY)
    tries = fields.number("tries", limits.LARGEST_TRIES)
    return Candidate(tool, call, probability, tries, bool(fields.number("repeated", 1)))


def _check_distinct(what: str, values: Sequence[int]) -> None:
    if len(set(values)) < len(values):
        raise InvalidDecision(f"{what}: one occurs twice")
