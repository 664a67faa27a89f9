"""An emitter that keeps what was emitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headstart import Emitter


class Taken(Emitter):
    """Keeps what was emitted; its broker never answers."""

    def __init__(self, directory: Path) -> None:
        super().__init__("127.0.0.1:1", spool=directory, shipper="none")
        self.events: list[dict[str, Any]] = []

    def emit(self, event: Any = None, /, **fields: Any) -> str:
        self.events.append({**(event or {}), **fields})
        return super().emit(event, **fields)
