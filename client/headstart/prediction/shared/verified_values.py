"""Shared values as an executor takes them: of a snapshot that may have been changed in Redis."""

from __future__ import annotations

from headstart.prediction.history.skeletons import Skeleton
from headstart.prediction.shared.snapshot import SharedSnapshot
from headstart.prediction.shared.value_texts import read_constant, read_skeleton
from headstart.prediction.stable_hash import Hash


def verified_values(
    snapshot: SharedSnapshot, hash_any: Hash
) -> tuple[dict[int, object], dict[int, Skeleton]]:
    """Return the constants and skeletons of a snapshot whose hash is right.

    The others are added to those that are wanted: an executor that knows them gives them again.
    """
    constants: dict[int, object] = {}
    for identity, text in snapshot.constants.items():
        value = read_constant(text, identity, hash_any)
        if value is not None:
            constants[identity] = value[0]
        else:
            snapshot.wanted_constants.append(identity)
    skeletons: dict[int, Skeleton] = {}
    for identity, text in snapshot.skeletons.items():
        skeleton = read_skeleton(text, identity, hash_any)
        if skeleton is not None:
            skeletons[identity] = skeleton
        else:
            snapshot.wanted_skeletons.append(identity)
    return constants, skeletons
