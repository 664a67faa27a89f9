"""What a check finds."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

OK: Final = "ok"
NOTE: Final = "note"
WRONG: Final = "wrong"


class Finding(NamedTuple):
    """One result. `remedy`: what to do, where there is something to do.

    `ok`: as it should be; `note`: works, but look at it; `wrong`: must be mended.
    """

    check: str
    state: Literal["ok", "note", "wrong"]
    what: str
    remedy: str = ""
