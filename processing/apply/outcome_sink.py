"""What can take the predictions of a partition in place of its contexts: a backtest does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from learners.outcome import Outcome
from processing.contexts.levels import ContextKey
from topics.schema.event_structs import EventFields


class OutcomeSink(Protocol):
    """Receives what happens to predictions, in the order of the log."""

    def opened(self, key: bytes, path: ContextKey, event: EventFields) -> None:
        """A start is open. One of the same key that still was has been closed before."""
        ...

    def closed(self, key: bytes, *, completed: bool) -> None:
        """A start is not open any more; an outcome that the completion has was passed before."""
        ...

    def learn(
        self,
        path: ContextKey,
        outcome: Outcome,
        completion: EventFields,
        start: bytes | None,
        stated: bool,
    ) -> None:
        """A prediction has an outcome.

        `start`: key of the open start that the completion is about to close, if any. `stated`: the
        completion states the prediction itself; otherwise it is that of the start.
        """
        ...

    def unmatched(self, completion: EventFields) -> None:
        """A completion states no outcome and has no open start."""
        ...

    def reset(self, holds: Callable[[str, str], bool]) -> None:
        """An operator reset the contexts for which `holds(tenant, path)`."""
        ...
