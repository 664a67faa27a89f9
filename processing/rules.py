"""Everything besides the log that a partition's rows follow from.

The same for every worker of a log, and for whoever replays it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.contexts import DEFAULT_LEVELS
from learners.policy import Policy


@dataclass(frozen=True)
class Rules:
    """How to learn.

    `policy`: of contexts that no choice names another one for. `levels`: context keys below the
    workflow type, coarse to fine. `operators_key`: where set, control records must be signed with
    it. `idle_ms`: event time after which a context without outcomes goes; `most_contexts` of one
    tenant in one partition, beyond which its oldest go.
    """

    policy: Policy
    levels: Sequence[str] = DEFAULT_LEVELS
    operators_key: bytes | None = None
    idle_ms: int = 30 * 86_400_000
    most_contexts: int = 100_000
