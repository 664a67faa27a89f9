"""Positions of a spool: acknowledged by the broker, and consumed so never needed again.

They differ only if the broker keeps its log in memory: see decision 0026.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from headstart.spool.layout import (
    ACKED_FILE,
    Progress,
    read_consumed,
    read_progress,
    write_marks,
    write_progress,
)

log = logging.getLogger("headstart")

_FLAGS: Final = os.O_RDWR | os.O_CREAT


class AcknowledgedMarks:
    """The acknowledgement file of one spool. Both positions are exclusive ends.

    `acknowledged`: by the broker that runs now. `consumed`: need never be sent again; equal to
    `acknowledged` unless acknowledged events are retained.
    """

    def __init__(self, folder: Path) -> None:
        """Open the file. Raises `OSError`."""
        self._file = os.open(folder / ACKED_FILE, _FLAGS, 0o600)
        self._folder = folder
        self.progress = read_progress(self._file) or Progress()
        consumed, settled = read_consumed(self._file), self.progress.settled
        self._retains = self._has_mark = consumed is not None
        self.consumed = self.acknowledged = settled if consumed is None else min(consumed, settled)
        if self._has_mark:  # the broker may have lost its log: emitters must not delete
            self._write()

    def set_retention(self, retain: bool) -> bool:
        """Retain acknowledged events until `mark_consumed`, or not. Raises `OSError`.

        Return whether `consumed` moved.
        """
        if retain and not self._has_mark:
            # Before any further acknowledgement.
            write_marks(self._file, self.consumed, self.acknowledged)
            self._has_mark = True
        self._retains = retain
        return not retain and self.mark_consumed(self.acknowledged)

    def advance(self, acknowledged: int) -> bool:
        """Store the acknowledged position; return whether the write succeeded."""
        self.acknowledged = acknowledged
        if not self._retains:
            self.consumed = acknowledged
        self.progress.settled = max(self.progress.settled, acknowledged)
        return self._write()

    def mark_consumed(self, position: int) -> bool:
        """Store that acknowledged positions below `position` never need to be sent again.

        Return whether that is new, and the write succeeded.
        """
        if not self.consumed < position <= self.acknowledged:
            return False
        self.consumed = position
        return self._write()

    def rewind(self) -> int:
        """Forget acknowledged positions that are not consumed; return their number."""
        count, self.acknowledged = self.acknowledged - self.consumed, self.consumed
        self._write()  # so that no emitter deletes events that the broker lost
        return count

    def _write(self) -> bool:
        try:
            write_progress(self._file, self.progress)
            if self._has_mark:
                write_marks(self._file, self.consumed, self.acknowledged)
        except OSError as error:  # a full disk: events are sent again
            log.warning("cannot store what is acknowledged of %s: %s", self._folder, error)
            return False
        return True

    def close(self) -> None:
        """Close the file. Twice is harmless."""
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)
