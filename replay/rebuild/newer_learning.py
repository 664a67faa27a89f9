"""What contexts have learned that an export lacks: its import would discard it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headstart.keys import workflow_type_of
from processing.records.partitioner import partition_for
from processing.state.counters import restored
from processing.state.rows import ContextRow, context_key, decode_context, is_deleted
from replay.log.live_table import TablePartition
from replay.rebuild.learned_state_file import LearnedLine


class NewerLearning(NamedTuple):
    """Contexts that have learned what the export lacks, and from how many outcomes.

    An outcome counts once, though every level of its workflow type learns from it.
    """

    contexts: int
    outcomes: int

    def __str__(self) -> str:
        contexts = "1 context" if self.contexts == 1 else f"{self.contexts:,} contexts"
        outcomes = "1 outcome" if self.outcomes == 1 else f"{self.outcomes:,} outcomes"
        return f"overwrites newer learning of {contexts}: from {outcomes} that the file lacks"


def newer_learning(
    tables: Mapping[int, TablePartition], lines: Iterable[LearnedLine]
) -> NewerLearning:
    """Compare the contexts of an export with the same ones in all partitions of the table.

    A context continues the exported one if none of its counts is smaller; then the outcomes are the
    difference. Any other one started from nothing, as in another log: then all its outcomes are.
    """
    contexts, of_types = 0, defaultdict[tuple[str, str], int](int)
    for line in lines:
        workflow_type = workflow_type_of(line.path)
        place = partition_for(line.tenant, workflow_type, len(tables))
        raw = tables[place].rows.get(context_key(line.tenant, line.path))
        if raw is None or is_deleted(raw):
            continue
        row = decode_context(raw)
        newer = row.outcomes - (line.outcomes if _continues(row, line) else 0)
        if newer > 0:
            contexts += 1
            key = line.tenant, workflow_type
            of_types[key] = max(of_types[key], newer)
    return NewerLearning(contexts, sum(of_types.values()))


def _continues(row: ContextRow, line: LearnedLine) -> bool:
    """Return whether a context may have learned on from the exported one."""
    now = [row.outcomes, row.speculated, row.hits]
    then = [line.outcomes, line.speculated, line.hits]
    if line.counts:
        now += restored(row.outcomes, row.speculated, row.hits, row.counts)
        then += line.counts
    return all(after >= before for before, after in zip(then, now, strict=True))
