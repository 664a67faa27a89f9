"""Rules about the rows that a recreated log begins with, each of which can be switched off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from unittest.mock import patch

import agents.thresholds.adoption
import agents.thresholds.recovery
from agents.thresholds.adoption import Adoption

Patches = Any


def only_whole_stores_are_adopted() -> Patches:
    """A partition is adopted only from a store that has what its last owner had."""
    return patch.object(agents.thresholds.adoption, "is_whole", lambda *_: True)


def what_may_have_been_learned_unnoted_counts() -> Patches:
    """Of one version another worker's store counts only if the last owner has given it back."""
    return patch.object(
        agents.thresholds.adoption, "is_whole", lambda held, last, _worker: held >= last.version
    )


def rows_are_given_to_others() -> Patches:
    """A worker writes to the new changelog what it has of partitions that others are assigned."""

    async def nothing(_self: Adoption, *_: object, **__: object) -> None:
        pass

    return patch.object(Adoption, "_give", nothing)


def older_rows_are_dropped() -> Patches:
    """A store of an older epoch is dropped where the changelog has the partition."""

    async def kept(_self: Any, partition: int) -> None:
        pass

    return patch.object(agents.thresholds.recovery.ContextStore, "drop_rows", kept)


EPOCH_RULES: Final[Sequence[Any]] = (
    only_whole_stores_are_adopted, what_may_have_been_learned_unnoted_counts,
    rows_are_given_to_others, older_rows_are_dropped,
)  # fmt: skip
