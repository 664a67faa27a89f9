"""A steady load of events, for tests in which something fails meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from headstart import Emitter
from tests.patience import PATIENCE_S

Event = dict[str, Any]


class Load:
    """Emits events, five at a time, until it is ended. `pause_s`: in between.

    `options`: of the `Emitter`.
    """

    def __init__(
        self, kafka: str, new: Callable[[int], Event], pause_s: float = 0.02, **options: Any
    ) -> None:
        self._kafka, self._new, self._pause_s, self._options = kafka, new, pause_s, options
        self.events: list[Event] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with Emitter(self._kafka, **self._options) as emitter:
            while not self._done.is_set():
                for _ in range(5):
                    self.events.append(self._new(len(self.events)))
                    emitter.emit(self.events[-1])
                time.sleep(self._pause_s)

    def end(self) -> list[Event]:
        """Return all events; they are in the log."""
        self._done.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.events
