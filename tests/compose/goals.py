"""What the containers must reach; what is missed is listed at the end, and the run fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tests.chaos.checker import Checked

FRESH_S: Final = 15.0
"""After kill -9 of a worker under load until thresholds are fresh again, at most."""
FRESH_IDLE_S: Final = 10.0
"""The same without load, after kill -9 of the worker `thresholds`."""
RESTARTED_S: Final = 60.0
"""Until a worker whose process hangs is restarted, at most."""
WHOLE_S: Final = 600.0
"""The whole run, at most."""


@dataclass
class Goals:
    """Compares what was measured with what must be reached; the run goes on after a miss."""

    missed: list[str] = field(default_factory=list)

    def at_most(self, what: str, seconds: float, most: float) -> None:
        """Note that `what` took `seconds`, and may take `most`."""
        if seconds > most:
            self.missed.append(f"{what} took {seconds:.1f} s, and may take {most:.0f} s")

    def exact(self, checked: Checked) -> None:
        """Note what the checker found."""
        self.none("events lost", checked.lost)
        self.none("events stored twice", checked.double)
        self.none("contexts that differ from the log", checked.differing)

    def none(self, what: str, number: int) -> None:
        """Note that there are `number` of what there must be none of."""
        if number:
            self.missed.append(f"{number} {what}")
