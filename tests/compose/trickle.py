"""A few events a second, so that it shows whether thresholds are fresh where there is no load."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headstart import Emitter

IDLE_TENANT: Final = "idle"
_PAUSE_S: Final = 0.2


class Trickle:
    """Emits one event of the same context every 0.2 s, from `with` to its end."""

    def __init__(self, kafka: str, folder: Path) -> None:
        self._emitter = Emitter(kafka, spool=folder / "spool-idle")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._emit, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(10)
        self._emitter.close()

    def _emit(self) -> None:
        number = 0
        while not self._ended.wait(_PAUSE_S):
            number += 1
            self._emitter.emit(
                event_type="task_complete", tenant=IDLE_TENANT, workflow_type="idle",
                workflow_id=f"idle-{number}", confidence=0.5,
                data={"prediction": {"was_correct": number % 2 == 0, "speculated": True}},
            )  # fmt: skip
