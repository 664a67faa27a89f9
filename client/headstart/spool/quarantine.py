"""Keeps events that will not be sent beside the spools, and logs errors. For people to read."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from headstart.spool.layout import QUARANTINE

log = logging.getLogger("headstart")


def keep_event(spool: Path, event: bytes, reason: str) -> None:
    """Append one event of a spool to its file of quarantined events (JSONL)."""
    file = spool.parent / QUARANTINE / f"{spool.name}.jsonl"
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as kept:
            kept.write(event + b"\n")
    except OSError as error:
        log.error("an event of spool %s is lost (%s; %s): %r", spool.name, reason, error, event)
    else:
        log.error("an event of spool %s is kept in %s: %s", spool.name, file, reason)


def keep_segment(segment: Path, reason: str) -> None:
    """Keep a copy of a segment, which outlives its spool."""
    spool = segment.parent
    kept = spool.parent / QUARANTINE / f"{spool.name}-{segment.name}"
    try:
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        if not kept.exists():
            _link(segment, kept)
    except OSError as error:
        log.error("spool segment %s %s, and cannot be kept: %s", segment, reason, error)
    else:
        log.error("spool segment %s %s: kept as %s", segment, reason, kept)


def keep_file(file: Path) -> None:
    """Move a file that does not belong to a spool, such as a renamed segment. Raises `OSError`."""
    spool = file.parent
    kept = spool.parent / QUARANTINE / f"{spool.name}-{file.name}"
    kept.parent.mkdir(mode=0o700, exist_ok=True)
    while os.path.lexists(kept):
        kept = kept.with_name(f"{kept.name}+")
    file.rename(kept)
    log.error(
        "spool segment %s has no name of a segment, so it is not sent: kept as %s", file, kept
    )


def quarantined_files(directory: Path) -> dict[str, int]:
    """Return names and sizes of the files in a directory's quarantine; {} if unreadable."""
    try:
        with os.scandir(directory / QUARANTINE) as files:
            return {file.name: file.stat().st_size for file in files}
    except OSError:
        return {}


def _link(segment: Path, kept: Path) -> None:
    try:
        os.link(segment, kept)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        shutil.copyfile(segment, kept)
