"""How one shared model compares with the log, and which of its versions the log cannot have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headstart.keys import model_key
from sinks.redis.models import ServedModel
from topics.models.log import FoundModel
from topics.models.records import is_ahead

EQUAL: Final = "equal"
DIFFERENT: Final = "different"
UNCHECKED: Final = "not checked"


@dataclass
class ModelComparison:
    """One model: how its stored state and what Redis serves compare with the replay.

    `stored`, `served`: `EQUAL`, `DIFFERENT` or `UNCHECKED`; `why`: of what is not equal.
    """

    tenant: str
    workflow_type: str
    partition: int
    offset: int = -1
    events: int = 0
    stored: str = UNCHECKED
    served: str = UNCHECKED
    why: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return DIFFERENT not in (self.stored, self.served)


def states_of_log(
    states: Sequence[FoundModel], end: tuple[int, int], comparison: ModelComparison
) -> list[FoundModel]:
    """Return the states that are not later than the log, as a worker reads them.

    `states`: of one model, in their order. `end`: (epoch, end of the partition). A later state is a
    difference if it is the last one: the others are superseded.
    """
    ahead = [is_ahead(each.model.version, *end) for each in states]
    if ahead and ahead[-1]:
        comparison.stored = DIFFERENT
        version = "{}:{}".format(*states[-1].model.version)
        comparison.why.append(
            f"the stored state has version {version}, which is later than the log: restart the "
            "worker predictions, which then ignores it and writes its own"
        )
    return [each for each, later in zip(states, ahead, strict=True) if not later]


def snapshot_of_log(
    served: ServedModel | None, end: tuple[int, int], comparison: ModelComparison
) -> ServedModel | None:
    """Return a snapshot that is of this log; None if not, and the comparison has the reason.

    `end`: (epoch, end of the partition).
    """
    if served is None:
        comparison.why.append("Redis has no snapshot with a valid version")
        return None
    version = served.epoch, served.offset
    if is_ahead(version, *end):
        key = model_key(served.tenant, served.workflow_type)
        when, remedy = "later than the log", f"delete the key {key} in Redis"
    elif served.epoch < end[0]:
        when, remedy = "of an earlier log epoch", "start the worker predictions"
    else:
        return served
    comparison.served = DIFFERENT
    comparison.why.append(
        "the snapshot in Redis has version {}:{}, which is {}: {}; if that does not replace "
        "it, run `headstart predict reset {} --tenant {}`".format(
            *version, when, remedy, served.workflow_type, served.tenant
        )
    )
    return None
