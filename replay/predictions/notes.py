"""Counts of what was read, of one unit or of several."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from processing.task import Checkpoint

MOST_NAMED: Final = 20
"""Most rejected events whose reasons are reported; all are counted."""


@dataclass
class Notes:
    """Counts of what was read, and of what was not a prediction.

    `unmatched`: completions without an outcome and an open start; `unresolved`: starts without a
    completion within an hour, or by the end of the log; `not_guessed`: those of `unmatched` that
    do not mention a guess. The filter applies to all three, except in `replay.rebuild.relearn`.
    """

    records: int = 0
    events: int = 0
    predictions: int = 0
    duplicates: int = 0
    unmatched: int = 0
    not_guessed: int = 0
    unresolved: int = 0
    refused: int = 0
    filtered: int = 0
    outside: int = 0
    """Agent runs outside the range of time."""
    scaled: list[str] = field(default_factory=list)
    """Guessed tools with a scale of their own, once for each unit."""
    named: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add_commit(self, partition: int, commit: Checkpoint) -> None:
        """Count the events and dead letters of a commit."""
        self.events += commit.events
        self.refused += len(commit.dead_letters)
        for letter in commit.dead_letters[: MOST_NAMED - len(self.named)]:
            self.named.append(f"partition {partition}, offset {letter.offset}: {letter.reason}")

    def add(self, other: Notes) -> None:
        """Add another partition's."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        del self.named[MOST_NAMED:]
