"""What one decision of an agent's model teaches, without any argument or result.

It has hashes of contexts, words, templates and whole calls, the names of tools, and small numbers.
Learning from records in the order of a log gives the state of a predictor that learned online, to
the bit.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

VERSION: Final = 1


class UnknownRecord(ValueError):
    """A record is of a newer version, or none: upgrade what reads it."""


Offered = tuple[tuple[int, ...], int, int]
"""One value that was on offer for a leaf: the identities of the templates that gave it, its hash if
it was on offer as a constant (else 0), and its flags, as bits of `value_ranking`."""


class LearnedLeaf(NamedTuple):
    """One leaf of a call."""

    leaf: int
    after: int  # hash of the tool before, or of the user's turn
    offered: tuple[Offered, ...]
    right: int  # index of the value it had; -1 if it was not on offer
    constant: int  # hash of the value it had; 0 for a text too long to be a constant
    found: tuple[tuple[int, ...], ...]  # templates that would have given the value


class LearnedCall(NamedTuple):
    """One call whose arguments are learned."""

    contexts: tuple[int, ...]  # of the skeleton: the tool; the tool and what was before
    skeleton: int
    leaves: tuple[LearnedLeaf, ...]


class Candidate(NamedTuple):
    """A whole call that was considered."""

    tool: str
    call: int  # hash, keyed by the user
    probability: int  # of tool and arguments, in units of 1 / fixed_math.ONE
    tries: int  # bucket of the observations behind the weakest argument
    repeated: bool  # this run has made the same call before


class LearnedRanking(NamedTuple):
    """The whole calls considered, and which of them were made."""

    candidates: tuple[Candidate, ...]
    rest: int  # probability of none of them, in units of 1 / fixed_math.ONE
    made: tuple[int, ...]  # indexes


class DecisionRecord(NamedTuple):
    """One decision."""

    contexts: tuple[int, ...]
    words: tuple[int, ...]
    named: tuple[tuple[str, int, int], ...]  # tool; share of its name's words, of 16, in the
    # agent's and in the user's last text
    symbol: str  # the first tool that was called, "" for a reply
    calls: tuple[LearnedCall, ...]
    ranking: LearnedRanking | None
    memory: tuple[int, ...]  # hashes of the calls before, keyed by the user
    followed: int  # hash of the first call that was made, keyed by the user; 0 for a reply

    def to_bytes(self) -> bytes:
        """Return the record as JSON."""
        return json.dumps([VERSION, *self], separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> DecisionRecord:
        """Return the record that `to_bytes()` gave. Raises `UnknownRecord`."""
        fields = _fields(data)
        contexts, words, named, symbol, calls, ranking, memory, followed = fields
        return DecisionRecord(
            tuple(contexts), tuple(words), tuple((t, a, u) for t, a, u in named), symbol,
            tuple(_call(*each) for each in calls), _ranking(*ranking) if ranking else None,
            tuple(memory), followed,
        )  # fmt: skip


def _fields(data: bytes) -> list[Any]:
    fields: list[Any]
    try:
        version, *fields = json.loads(data)
    except (ValueError, TypeError) as error:
        raise UnknownRecord("this is no decision record") from error
    if version != VERSION:
        raise UnknownRecord(
            f"this decision record has version {version!r}, known is {VERSION}; upgrade the reader"
        )
    if len(fields) != len(DecisionRecord._fields):
        raise UnknownRecord("this is no decision record")
    return fields


def _call(contexts: list[int], skeleton: int, leaves: list[list]) -> LearnedCall:  # type: ignore
    return LearnedCall(tuple(contexts), skeleton, tuple(_leaf(*each) for each in leaves))


def _leaf(leaf, after, offered, right, constant, found) -> LearnedLeaf:  # type: ignore
    values = tuple((tuple(templates), value, flags) for templates, value, flags in offered)
    return LearnedLeaf(leaf, after, values, right, constant, tuple(tuple(x) for x in found))


def _ranking(candidates, rest, made) -> LearnedRanking:  # type: ignore
    return LearnedRanking(tuple(Candidate(*each) for each in candidates), rest, tuple(made))
