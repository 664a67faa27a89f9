"""The result of one check."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

OK: Final = "ok"
WARNING: Final = "warning"
ERROR: Final = "error"

_STATES: Final = {OK: "ok", WARNING: "note", ERROR: "wrong"}


class Finding(NamedTuple):
    """One result. `remedy`: how to fix it, empty where there is nothing to do.

    `ok`: as it should be; `warning`: works, but needs attention; `error`: must be fixed.
    """

    check: str
    level: Literal["ok", "warning", "error"]
    what: str
    remedy: str = ""

    @property
    def state(self) -> str:
        """The level in the words of the JSON field `state`: ok, note or wrong."""
        return _STATES[self.level]
