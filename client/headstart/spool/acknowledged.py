"""How far a spool is through: what the broker acknowledged, and what need never be sent again.

The two differ only where the broker keeps its log in memory: see decision 0026.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from headstart.spool.layout import (
    ACKED_FILE,
    Progress,
    read_progress,
    read_taken,
    write_progress,
    write_taken,
)

log = logging.getLogger("headstart")

_FLAGS: Final = os.O_RDWR | os.O_CREAT


class AcknowledgedMarks:
    """The acknowledgement file of one spool.

    `sent`: positions below are acknowledged by the broker that is there now. `taken`: positions
    below need never be sent again; the same as `sent`, unless what is acknowledged is kept.
    """

    def __init__(self, folder: Path) -> None:
        """Open the file. Raises `OSError`."""
        self._file = os.open(folder / ACKED_FILE, _FLAGS, 0o600)
        self._folder = folder
        self.progress = read_progress(self._file) or Progress()
        taken = read_taken(self._file)
        self._keeps = self._marked = taken is not None
        self.taken = self.progress.settled if taken is None else min(taken, self.progress.settled)
        self.sent = self.taken
        if self._marked:  # the broker may have another log by now: an emitter must delete nothing
            self._note()

    def keep(self, *, keep: bool) -> bool:
        """Keep what is acknowledged until `take_in`, or not. Raises `OSError`.

        Return whether `taken` moved.
        """
        if keep and not self._marked:
            write_taken(self._file, self.taken, self.sent)  # before anything more is acknowledged
            self._marked = True
        self._keeps = keep
        return not keep and self.take_in(self.sent)

    def advance(self, sent: int) -> bool:
        """Note that positions below `sent` are acknowledged; return whether that is on disk."""
        self.sent = sent
        if not self._keeps:
            self.taken = sent
        self.progress.settled = max(self.progress.settled, sent)
        return self._note()

    def take_in(self, position: int) -> bool:
        """Note that positions below, which were sent, need never be sent again.

        Return whether that is news, and on disk.
        """
        if not self.taken < position <= self.sent:
            return False
        self.taken = position
        return self._note()

    def rewind(self) -> int:
        """Forget what was acknowledged and not taken in; return how many positions that are."""
        count, self.sent = self.sent - self.taken, self.taken
        self._note()  # so that an emitter does not delete what no broker has
        return count

    def _note(self) -> bool:
        try:
            write_progress(self._file, self.progress)
            if self._marked:
                write_taken(self._file, self.taken, self.sent)
        except OSError as error:  # the disk may be full; what is not noted is sent again
            log.warning("cannot note what is acknowledged of %s: %s", self._folder, error)
            return False
        return True

    def close(self) -> None:
        """Close the file. Twice is harmless."""
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)
