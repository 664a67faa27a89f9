"""From what was exported to control records that seed it; and what any would do, tried first.

A rehearsal applies control records to a copy of the table by the threshold agent's own core, so it
says what the agent will do, as long as nothing else happens in between. Sends nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headstart.keys import workflow_type_of
from processing.config import LearningConfig
from processing.records.batch import RecordBatch
from processing.records.partitioner import partition_for
from processing.state.rows import CONTEXT, context_of
from processing.task import PartitionTask
from replay.log.live_table import TablePartition
from replay.rebuild.learned_state_file import LearnedLine
from topics.catalogue import EVENTS
from topics.control.messages import Control, Seed, Seeded, control_records
from topics.epoch import Epoch

AT_ONCE: Final = 100
"""Contexts of one record."""
REASON: Final = "__connect.errors.exception.message"


@dataclass
class Rehearsed:
    """What control records would do. `touched`: (tenant, path) of contexts, by partition."""

    touched: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    @property
    def contexts(self) -> int:
        """How many contexts it is about."""
        return sum(map(len, self.touched.values()))


def seeds_of(
    lines: Iterable[LearnedLine], partitions: int, id: str, at: int
) -> list[tuple[int, Seed]]:
    """Return (partition, seed) in the order in which they have to be sent."""
    chosen: dict[tuple[str, int], list[Seeded]] = defaultdict(list)
    for line in sorted(lines, key=lambda each: (each.tenant, each.path)):
        place = partition_for(line.tenant, workflow_type_of(line.path), partitions)
        chosen[line.tenant, place].append(_seeded(line))
    return [
        (place, Seed(id, at, tenant, number, tuple(some)))
        for (tenant, place), contexts in chosen.items()
        for number, some in enumerate(_parts(contexts))
    ]


def _seeded(line: LearnedLine) -> Seeded:
    """Return what a line says of a context: of an export of old only what it is known to mean."""
    said = (
        line.learner, line.learner_version, line.state, line.outcomes, line.path, line.speculated,
        line.hits,
    )  # fmt: skip
    if not line.counts:
        return Seeded(*said)
    return Seeded(*said, line.at, line.gain, line.cost, line.counts)


def _parts(contexts: Sequence[Seeded]) -> list[Sequence[Seeded]]:
    return [contexts[begin : begin + AT_ONCE] for begin in range(0, len(contexts), AT_ONCE)]


def rehearse(
    tables: Mapping[int, TablePartition],
    epoch: Epoch,
    rules: LearningConfig,
    said: Sequence[tuple[int, Control]],
    now_ms: int,
) -> Rehearsed:
    """Return what control records would do to the table, each in its partition."""
    found = Rehearsed()
    for partition in sorted({place for place, _ in said}):
        rows = tables[partition].rows
        core = PartitionTask(partition, epoch.partitions, epoch.number, rules, rows.get)
        core.restore(rows.items())
        records = [
            each
            for place, control in said
            if place == partition
            for each in control_records(control, [partition], rules.operators_key)
        ]
        begin = core.applied_offset + 1
        offsets = list(range(begin, begin + len(records)))
        core.apply(
            RecordBatch(
                EVENTS.name, partition, begin, begin + len(records), offsets,
                [now_ms] * len(records), [each.key for each in records],
                [each.value for each in records],
                {at: each.headers for at, each in zip(offsets, records, strict=True)},
            )
        )  # fmt: skip
        commit = core.commit()
        found.touched[partition] = [
            context_of(key) for key, _ in commit.rows if key.startswith(CONTEXT)
        ]
        said_at = [control for place, control in said if place == partition]
        for letter in commit.dead_letters:
            reason = dict(letter.headers)[REASON].decode()
            control = said_at[letter.offset - begin]
            whose = f"{control.tenant}: " if isinstance(control, Seed) else ""
            found.refused.append(whose + reason)
    return found
