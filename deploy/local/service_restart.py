"""Restarts a service that died, with exponential back-off and a limit."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from deploy.local.child_process import Child, end_all
from deploy.local.process_group import ProcessGroup
from deploy.local.service import Service

MOST_ENDS: Final = 5
WITHIN_S: Final = 300.0
"""A service that ended `MOST_ENDS` times within `WITHIN_S` seconds is not restarted again."""
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 10.0


@dataclass(frozen=True)
class Restart:
    """A service that died and was restarted."""

    name: str
    ended: str
    """how its process ended"""
    took_s: float
    """from the detection until it answered again"""

    def __str__(self) -> str:
        return f"{self.name} {self.ended}; started again, it answers after {self.took_s:.1f} s"


@dataclass(frozen=True)
class Failure:
    """A service that died and did not start; it will be retried."""

    name: str
    why: str
    again_s: float

    def __str__(self) -> str:
        return f"{self.name} does not start: {self.why}; trying again in {self.again_s:.1f} s"


@dataclass
class ServiceRestarter:
    """Keeps one service running on its port and data. Use it from the main thread."""

    name: str
    part: Service
    group: ProcessGroup
    restarts: int = 0
    _ends: deque[float] = field(default_factory=deque)
    _ended: str = ""
    _noticed: float = 0.0
    _due: float | None = None

    @property
    def down(self) -> bool:
        """Whether its process has ended, or it does not answer yet."""
        server = self.part.server
        return self._due is not None or (server is not None and not server.alive)

    def check(self, before: Callable[[str], None]) -> Restart | Failure | None:
        """Restart the service if it died and the delay is over; return the result, None if not.

        Calls `before` with its name first, and waits until it answers. Raises `StackError` at
        `MOST_ENDS`.
        """
        server = self.part.server
        if server is None or not self.down:
            return None
        now = time.monotonic()
        if self._due is None:
            self._ended, self._noticed = server.outcome, now
            self._note_end(server, now)
        if self._due is None or now < self._due:
            return None
        before(self.name)
        try:
            self._start(server)
        except Exception as error:  # also errors of the client that probes it
            failed = self.part.server or server
            end_all([failed])
            again_s = self._note_end(failed, time.monotonic())
            why = (str(error) or type(error).__name__).splitlines()[0]
            return Failure(self.name, why, again_s)
        self._due = None
        self.restarts += 1
        return Restart(self.name, self._ended, time.monotonic() - self._noticed)

    def _start(self, died: Child) -> None:
        if died in self.group.children:
            self.group.forget(died)
        try:
            self.group.claim(self.name)
            self.part.launch()
        finally:
            self.group.launched()
        self.part.ready()

    def _note_end(self, server: Child, now: float) -> float:
        """Schedule the next start; return the delay in seconds."""
        self._ends.append(now)
        while now - self._ends[0] > WITHIN_S:
            self._ends.popleft()
        if len(self._ends) >= MOST_ENDS:
            raise server.failure(
                f"{server.outcome}, {len(self._ends)} times within {WITHIN_S:.0f} s: it is not "
                "started again",
                "see its log, and start the stack again",
            )
        delay_s: float = min(_FIRST_DELAY_S * 4 ** (len(self._ends) - 1), _LONGEST_DELAY_S)
        self._due = now + delay_s
        return delay_s
