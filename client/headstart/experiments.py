"""Assigns workflows to the arms of an experiment, by a stable hash of their ids.

An executor and `headstart experiment`, which evaluates the log later, agree without communicating,
because both compute the arm from the id alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final
from zlib import crc32

from headstart.arguments.checks import LARGEST, InvalidArgument, identifier, mapping, number

GROUPS: Final = 1024
"""Number of groups that workflows are hashed into."""


def arm_of(experiment: str, shares: Mapping[str, float], workflow_id: str) -> str:
    """Return the arm of a workflow.

    `shares`: relative size by arm, the same as for `headstart experiment`; the order of the arms
    does not matter. Raises `InvalidArgument` if no share is above 0, or a name or id is not a
    non-empty string.

        arm = headstart.arm_of("bolder", {"control": 50, "bolder": 50}, run.id)
    """
    identifier("workflow_id", workflow_id)
    return assignment(experiment, shares)[workflow_group(workflow_id)]


def workflow_group(workflow_id: str) -> int:
    """Return the group of a workflow, from 0 to GROUPS - 1."""
    return crc32(workflow_id.encode()) % GROUPS


def assignment(experiment: str, shares: Mapping[str, float]) -> Sequence[str]:
    """Return the arm of each group of workflows. Raises `InvalidArgument` if no share is above 0.

    The groups are ordered by a hash of the experiment's name, and divided by the shares in the
    order of the arms' names; so two experiments assign workflows independently, and the order in
    which the arms are given has no influence.
    """
    identifier("experiment", experiment)
    for arm, share in mapping("shares", shares).items():
        identifier("shares: the name of an arm", arm)
        number(f"shares: {arm}", share, float("-inf"))
    return _arms(experiment, tuple(sorted(shares.items())))


@lru_cache(maxsize=256)
def _arms(experiment: str, shares: tuple[tuple[str, float], ...]) -> Sequence[str]:
    def order_key(group: int) -> bytes:
        return blake2b(f"{experiment}\x1f{group}".encode(), digest_size=8).digest()

    total = sum(share for _, share in shares)
    if not 0.0 < total <= LARGEST or min(share for _, share in shares) < 0.0:
        raise InvalidArgument(f"an experiment's shares must be above 0, not {dict(shares)}")
    order = sorted(range(GROUPS), key=order_key)
    arms, at, taken = [""] * GROUPS, 0, 0.0
    for name, share in shares:
        taken += share
        end = round(GROUPS * taken / total)
        for group in order[at:end]:
            arms[group] = name
        at = end
    return tuple(arms)
