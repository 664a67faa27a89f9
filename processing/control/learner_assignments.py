"""Assigns learners to contexts, by choices in control records, and matches their patterns.

A pattern consists of parts of context paths, `key=value`, joined by `/`; a value may be `*`. It
matches contexts that have all its parts, and so all contexts below them; `*` alone matches every
context. Example: `domain=retail`, `workflow_type=refund/user_id=*`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from headstart.keys import SEPARATOR
from learners.policy import Policy
from learners.registry import policy
from processing.control.latest_by_subject import LatestBySubject
from processing.state.rows import CONTROL, control_body, control_row
from topics.control.messages import LearnerChoice

_KIND = "learner"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LearnerChoice).decode


@lru_cache(maxsize=1024)
def named_policy(specification: str) -> Policy | None:
    """Return the policy of a specification; None where this version does not have it."""
    try:
        return policy(specification)
    except (LookupError, ValueError):
        return None


class LearnerAssignments(LatestBySubject[LearnerChoice]):
    """The choices of one partition, the newest of each pattern and tenant."""

    def __init__(self, epoch: int) -> None:
        super().__init__(epoch)
        self._ranked: list[tuple[LearnerChoice, Callable[[str, str], bool], Policy]] = []

    def restore(self, key: bytes, raw: bytes) -> None:
        """Restore one row of the table."""
        if key.startswith(_key_of(_KIND)):
            self._latest[key] = _decode(control_body(raw))
            self._rank()

    def apply(self, choice: LearnerChoice, offset: int) -> bool:
        """Apply a choice unless a later one holds; return whether it was applied.

        Raises `ValueError` where pattern or learner are invalid.
        """
        check(choice)
        key = _key_of(_KIND, choice.tenant or "", choice.pattern)
        held = self._latest.get(key)
        if held is not None and (held.at, held.id) >= (choice.at, choice.id):
            return False
        self._set(key, choice, _encode(choice), offset)
        self._rank()
        return True

    def policy_of(self, tenant: str, path: str) -> Policy | None:
        """Return the policy of the most specific choice that matches a context; None without one.

        A choice for the tenant wins over one for all tenants, then more parts, then fewer `*`.
        """
        for _choice, holds, chosen in self._ranked:
            if holds(tenant, path):
                return chosen
        return None

    def _rank(self) -> None:
        named = [
            (choice, matcher(choice.pattern, choice.tenant), chosen)
            for choice in self._latest.values()
            if choice.learner is not None and (chosen := named_policy(choice.learner)) is not None
        ]
        self._ranked = sorted(named, key=lambda each: _rank_of(each[0]), reverse=True)


def choices_in(rows: Mapping[bytes, bytes]) -> list[LearnerChoice]:
    """Return the choices among the rows of a table, revoked ones included."""
    begin = _key_of(_KIND)
    return [_decode(control_body(row)) for key, row in rows.items() if key.startswith(begin)]


def choice_row(choice: LearnerChoice, epoch: int) -> tuple[bytes, bytes]:
    """Return (key, row) of a choice that holds from the beginning of a log epoch."""
    key = _key_of(_KIND, choice.tenant or "", choice.pattern)
    return key, control_row(_encode(choice), epoch, -1)


def check(choice: LearnerChoice) -> None:
    """Raise `ValueError` where the pattern or learner of a choice is invalid."""
    parts(choice.pattern)
    if choice.learner is not None:
        _known(choice.learner)


def parts(pattern: str) -> frozenset[str]:
    """Return the parts of a pattern; none for `*`. Raises `ValueError` where it is invalid."""
    if pattern == "*":
        return frozenset()
    found = pattern.split("/")
    if SEPARATOR in pattern or not all(part.count("=") == 1 and part[0] != "=" for part in found):
        raise ValueError(
            f"pattern {pattern!r:.100}: give * or key=value parts joined by /, as in "
            "workflow_type=refund/domain=*"
        )
    return frozenset(found)


def _known(learner: str) -> None:
    try:
        policy(learner)
    except LookupError as error:
        raise ValueError(error.args[0]) from None


def _rank_of(choice: LearnerChoice) -> tuple[bool, int, int, str]:
    wanted = parts(choice.pattern)
    stars = sum(part.endswith("=*") for part in wanted)
    return choice.tenant is not None, len(wanted), -stars, choice.pattern


def matcher(pattern: str, of: str | None) -> Callable[[str, str], bool]:
    """Return a function that returns whether a pattern matches (tenant, path).

    `of`: the only tenant that it is for; None: all.
    """
    wanted = parts(pattern)
    exact = frozenset(part for part in wanted if not part.endswith("=*"))
    keys = frozenset(part[:-2] for part in wanted - exact)

    def holds(tenant: str, path: str) -> bool:
        if of is not None and of != tenant:
            return False
        there = path.split("/")
        return exact.issubset(there) and keys.issubset(part.partition("=")[0] for part in there)

    return holds


def _key_of(*names: str) -> bytes:
    return CONTROL + SEPARATOR.join(names).encode()
