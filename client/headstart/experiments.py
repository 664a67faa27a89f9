"""Which arm of an experiment a workflow is in: by a stable hash of its id, known to nobody before.

The executor that asks and `headstart experiment`, which looks at the log later, agree without
telling each other, because both work it out from the id alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final
from zlib import crc32

from headstart.arguments.checks import LARGEST, InvalidArgument, identifier, mapping, number

GROUPS: Final = 1024
"""Workflows are kept apart in so many groups by a hash of their ids."""


def arm_of(experiment: str, shares: Mapping[str, float], workflow_id: str) -> str:
    """Return the arm of a workflow.

    `shares`: of each arm, taken in proportion, in the order that the experiment is looked at with.
    Raises `InvalidArgument` without a share above 0, and for what is no name or no id.

        arm = headstart.arm_of("bolder", {"control": 50, "bolder": 50}, run.id)
    """
    identifier("workflow_id", workflow_id)
    return assignment(experiment, shares)[workflow_group(workflow_id)]


def workflow_group(workflow_id: str) -> int:
    """Return the group of a workflow, from 0 to GROUPS - 1."""
    return crc32(workflow_id.encode()) % GROUPS


def assignment(experiment: str, shares: Mapping[str, float]) -> Sequence[str]:
    """Return the arm of each group of workflows. Raises `InvalidArgument` without a share above 0.

    Groups stand in an order that only the experiment's name decides, and are cut by the shares; so
    two experiments share workflows out independently.
    """
    identifier("experiment", experiment)
    for arm, share in mapping("shares", shares).items():
        identifier("shares: the name of an arm", arm)
        number(f"shares: {arm}", share, float("-inf"))
    return _arms(experiment, tuple(shares.items()))


@lru_cache(maxsize=256)
def _arms(experiment: str, shares: tuple[tuple[str, float], ...]) -> Sequence[str]:
    def drawn(group: int) -> bytes:
        return blake2b(f"{experiment}\x1f{group}".encode(), digest_size=8).digest()

    total = sum(share for _, share in shares)
    if not 0.0 < total <= LARGEST or min(share for _, share in shares) < 0.0:
        raise InvalidArgument(f"an experiment's shares must be above 0, not {dict(shares)}")
    order = sorted(range(GROUPS), key=drawn)
    arms, at, taken = [""] * GROUPS, 0, 0.0
    for name, share in shares:
        taken += share
        end = round(GROUPS * taken / total)
        for group in order[at:end]:
            arms[group] = name
        at = end
    return tuple(arms)
