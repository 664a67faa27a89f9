"""How long tests wait for what is to come: on a busy machine slow is no failure."""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 240.0
