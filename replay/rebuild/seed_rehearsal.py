"""Makes control records that seed exported contexts, and rehearses control records.

A rehearsal applies control records to a copy of the table with the threshold worker's own core, so
its result is what the worker will do if no other record comes first. It sends nothing.
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
class Rehearsal:
    """The effect of control records. `touched`: (tenant, path) of contexts, by partition."""

    touched: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    @property
    def contexts(self) -> int:
        """Number of contexts touched."""
        return sum(map(len, self.touched.values()))


def seeds_of(
    lines: Iterable[LearnedLine], partitions: int, id: str, at: int
) -> list[tuple[int, Seed]]:
    """Return (partition, seed) in the order in which they must be sent."""
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
    """Return the seed of a line; of an older export without counts, only the fields it had."""
    fields = (
        line.learner, line.learner_version, line.state, line.outcomes, line.path, line.speculated,
        line.hits,
    )  # fmt: skip
    if not line.counts:
        return Seeded(*fields)
    return Seeded(*fields, line.at, line.gain, line.cost, line.counts)


def _parts(contexts: Sequence[Seeded]) -> list[Sequence[Seeded]]:
    return [contexts[begin : begin + AT_ONCE] for begin in range(0, len(contexts), AT_ONCE)]


def rehearse(
    tables: Mapping[int, TablePartition],
    epoch: Epoch,
    rules: LearningConfig,
    controls: Sequence[tuple[int, Control]],
    now_ms: int,
) -> Rehearsal:
    """Return the effect of control records on the table, each in its partition."""
    found = Rehearsal()
    for partition in sorted({place for place, _ in controls}):
        rows = tables[partition].rows
        core = PartitionTask(partition, epoch.partitions, epoch.number, rules, rows.get)
        core.restore(rows.items())
        records = [
            each
            for place, control in controls
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
        sent = [control for place, control in controls if place == partition]
        for letter in commit.dead_letters:
            reason = dict(letter.headers)[REASON].decode()
            control = sent[letter.offset - begin]
            prefix = f"{control.tenant}: " if isinstance(control, Seed) else ""
            found.refused.append(prefix + reason)
    return found
