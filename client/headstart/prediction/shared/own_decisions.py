"""An executor's own decisions: emitted in their order, and kept until a snapshot covers them."""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, Final, NamedTuple

from headstart.prediction.decision_record import DecisionRecord
from headstart.prediction.model import CallModel
from headstart.prediction.shared.decision_events import decision_event
from headstart.prediction.shared.invalid_decision import InvalidDecision
from headstart.prediction.shared.record_limits import LARGEST_RECORD, LONGEST_NAME
from headstart.prediction.shared.record_reading import read_record
from headstart.prediction.shared.record_writing import record_bytes

Emit = Callable[[Mapping[str, Any]], None]
"""Takes an event: its type and content."""
MOST_KEPT: Final = 1_000


class OwnDecision(NamedTuple):
    """A decision that an executor has learned and emits."""

    executor: str
    sequence: int
    writer: int
    data: bytes


class OwnDecisions:
    """The decisions of one process, from one thread at a time but for `emit_all()`."""

    def __init__(self, check: int) -> None:
        self._check = check
        self.start_new_executor()

    def start_new_executor(self) -> None:
        """Forget everything; what follows is of another executor."""
        self.executor = f"e{secrets.token_hex(8)}"
        self._process = os.getpid()
        self._emission = Lock()
        self.sequence = 0
        """Of the last decision."""
        self.kept: deque[OwnDecision] = deque(maxlen=MOST_KEPT)
        self._unsent: deque[OwnDecision] = deque(maxlen=MOST_KEPT)

    def add(self, record: DecisionRecord, writer: int) -> None:
        """Add a decision. What is too large to be emitted is emitted in part."""
        data = _emitted_bytes(record)
        if data is None:
            return
        if self._process != os.getpid():  # forked: the sequence goes on in the parent
            self.start_new_executor()
        self.sequence += 1
        decision = OwnDecision(self.executor, self.sequence, writer, data)
        self.kept.append(decision)
        self._unsent.append(decision)

    def emit_all(self, emit: Emit) -> None:
        """Emit what was added, in its order. Raises what `emit` raises; that decision is lost."""
        with self._emission:
            while self._unsent:
                each = self._unsent.popleft()
                emit(decision_event(
                    each.executor, each.sequence, self._check, each.writer, each.data
                ))  # fmt: skip

    def forget_covered(self, covered: Mapping[str, int], *, covers_all: bool) -> bool:
        """Forget the decisions that a snapshot has learned; return False for a forged sequence.

        If the snapshot does not list all executors, and not this one, they are taken as learned:
        those that it lacks come with a later one. A sequence above the last one is of another
        process that uses this id. The worker will take all that follow as repeats: they go on
        under another id.
        """
        last = covered.get(self.executor, 0 if covers_all else self.sequence)
        if last > self.sequence:
            self.start_new_executor()
            return False
        while self.kept and self.kept[0].sequence <= last:
            self.kept.popleft()
        return True


def learn_again(model: CallModel, decisions: list[OwnDecision]) -> None:
    """Let a model learn decisions as the worker does, without those that the worker refuses."""
    for each in decisions:
        with suppress(InvalidDecision):
            model.learn(read_record(each.data))


def _emitted_bytes(record: DecisionRecord) -> bytes | None:
    """Return a record without the last calls that are too many; None if it cannot be emitted."""
    names = [record.symbol, *(tool for tool, _, _ in record.named)]
    names += [each.tool for each in record.ranking.candidates] if record.ranking else []
    if max(map(len, names)) > LONGEST_NAME:
        return None
    try:
        data = record_bytes(record)
        while len(data) > LARGEST_RECORD and record.calls:
            record = record._replace(calls=record.calls[: len(record.calls) // 2])
            data = record_bytes(record)
    except UnicodeEncodeError:
        return None
    return data if len(data) <= LARGEST_RECORD else None
