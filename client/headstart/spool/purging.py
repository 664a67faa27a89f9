"""Removes a subject's events from a directory of spools that no process uses meanwhile.

A file is replaced by a new one as a whole, so kill -9 at any line leaves the old or the new one.
Positions stay: those of removed events are noted before, and no shipper counts them as lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from headstart.spool.layout import (
    NEW,
    QUARANTINE,
    SPOOL_FILE,
    segments,
    spool_names,
)
from headstart.spool.locks import is_current, noted_shipper, open_lock, try_lock
from headstart.spool.purged_events import (
    FileRest,
    PurgedEvents,
    SpoolSubject,
    file_events,
    file_without,
)
from headstart.spool.purged_positions import add_purged
from headstart.spool.replacing import replace_file

_LOOK_S: Final = 0.05


class SpoolPurge(NamedTuple):
    """What a purge of a directory of spools has done."""

    directory: Path
    subject: SpoolSubject
    removed: int
    """Events."""
    rewritten: int
    """Files."""
    in_use: tuple[str, ...] = ()
    """Spools of running processes, which are as they were."""
    unreadable: tuple[str, ...] = ()
    """Files with damage that names the subject, which are as they were: delete them."""

    @property
    def complete(self) -> bool:
        """Whether all of the subject's events were removed."""
        return not (self.in_use or self.unreadable)

    def __str__(self) -> str:
        """Return it in one line, for people."""
        where = f"events of {self.subject} in {self.directory}"
        parts = [f"{where}: {self.removed}, in {self.rewritten} files"]
        if self.in_use:
            parts.append(f"spools of running processes, left as they were: {len(self.in_use)}")
        if self.unreadable:
            parts.append(f"damaged files that name it: {', '.join(self.unreadable)}")
        return "; ".join(parts)


def purge_spools(
    directory: Path, subject: SpoolSubject, *, dry_run: bool = False, timeout_s: float = 5.0
) -> SpoolPurge:
    """Remove a subject's events, sent or not, from the spools of ended processes and quarantine.

    Holds the lock of the shipper, so that none starts meanwhile; waits up to `timeout_s` seconds
    for it. `dry_run`: count, and change nothing. Raises `TimeoutError` that names the process that
    ships the directory, `FileNotFoundError` without a directory, other kinds of `OSError`, and
    `ValueError` if the subject is none.
    """
    purged = PurgedEvents(subject)
    with _shipper_lock(directory, timeout_s), _free_spools(directory) as (free, in_use):
        last = {there[-1][1] for folder in free if (there := segments(folder))}
        files = [path for folder in free for _, path in segments(folder)]
        files += sorted(_quarantined(directory))
        for path in files:
            for event in file_events(path.read_bytes()):
                purged.learn(event)
        removed, rewritten = 0, set[Path]()
        unreadable: list[str] = []
        # Events that name a user go last: killed before, the next purge still knows the runs.
        for goes in (purged.has_run_of, purged.names):
            unreadable = []
            for path in files:
                found = file_without(path.read_bytes(), purged, goes, may_be_torn=path in last)
                if found.unreadable:
                    unreadable.append(str(path.relative_to(directory)))
                if found.changed:
                    removed += len(found.removed)
                    rewritten.add(path)
                    if not dry_run:
                        _store(path, found)
    return SpoolPurge(directory, subject, removed, len(rewritten), tuple(in_use), tuple(unreadable))


@contextmanager
def _shipper_lock(directory: Path, timeout_s: float) -> Iterator[None]:
    deadline = time.monotonic() + timeout_s
    while True:
        lock = open_lock(directory)
        try:
            if try_lock(lock):
                if is_current(directory, lock):
                    yield
                    return
            elif time.monotonic() > deadline:
                process = noted_shipper(lock)
                raise TimeoutError(
                    f"process {process} ships {directory}: stop the executors there, end that "
                    f"process (kill {process}), and run this again"
                )
        finally:
            os.close(lock)
        time.sleep(_LOOK_S)


@contextmanager
def _free_spools(directory: Path) -> Iterator[tuple[list[Path], list[str]]]:
    """Yield the folders of spools whose process has ended, locked, and the names of the others."""
    held: list[int] = []
    free, in_use = [], []
    try:
        for name in sorted(spool_names(directory)):
            try:
                held.append(os.open(directory / name / SPOOL_FILE, os.O_RDWR))
            except FileNotFoundError:  # not a spool, or one that was removed
                continue
            if try_lock(held[-1]):
                free.append(directory / name)
            else:
                in_use.append(name)
        yield free, in_use
    finally:
        for lock in held:
            os.close(lock)


def _quarantined(directory: Path) -> list[Path]:
    folder = directory / QUARANTINE
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(NEW)]


def _store(path: Path, rest: FileRest) -> None:
    if rest.removed and path.parent.name != QUARANTINE:
        add_purged(path.parent, rest.removed)
    replace_file(path, rest.data)
