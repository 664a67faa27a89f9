"""Memory and open files of every worker during a soak, once a minute, and whether they grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from bench.support.measuring import resident_mb
from bench.support.trend import Trend, trend

EVERY_S: Final = 60.0
WARM_S: Final = 180.0
"""A process loads code, compiles, and fills its caches for so long; later samples are judged."""
FLAT_MB_PER_H: Final = 24.0
"""Growth that counts as none: as that of `bench footprint`, 4 MB in ten minutes."""
FLAT_FILES_PER_H: Final = 6.0
_HOUR_S: Final = 3_600.0


class Sample(NamedTuple):
    """One process at one moment. `at`: seconds; `mb`: resident set; `files`: open descriptors."""

    at: float
    pid: int
    mb: float
    files: int


class GrowthWatch:
    """Samples workers in a thread of its own, from `with` to its end."""

    def __init__(self, pids: Callable[[], Mapping[str, int]], every_s: float = EVERY_S) -> None:
        """`pids`: returns the process of each worker by its name."""
        self._pids, self._every_s = pids, every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.samples: dict[str, list[Sample]] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._every_s):
            for name, pid in self._pids().items():
                with suppress(OSError):  # it has just ended
                    files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
                    found = Sample(time.monotonic(), pid, resident_mb(pid), files)
                    self.samples.setdefault(name, []).append(found)


def judged(samples: Iterable[Sample], warm_s: float = WARM_S) -> dict[str, Any]:
    """Return the most that one worker took, how it grew an hour, and the verdict on both.

    Judged is the process that lived longest, without its first `warm_s` seconds: a restart begins
    from little again. `flat` has to be shown; few samples leave it `undecided`.
    """
    every = list(samples)
    lives: dict[int, list[Sample]] = {}
    for each in every:
        lives.setdefault(each.pid, []).append(each)
    longest = max(lives.values(), key=lambda life: life[-1].at - life[0].at)
    warm = [each for each in longest if each.at >= longest[0].at + warm_s]
    memory = _an_hour([(each.at, each.mb) for each in warm])
    files = _an_hour([(each.at, float(each.files)) for each in warm])
    verdicts = memory.verdict(FLAT_MB_PER_H), files.verdict(FLAT_FILES_PER_H)
    return {
        "most_mb": round(max(each.mb for each in every), 1),
        "mb_per_h": round(memory.slope, 2),
        "mb_per_h_error": _finite(memory.error),
        "most_files": max(each.files for each in every),
        "files_per_h": round(files.slope, 2),
        "files_per_h_error": _finite(files.error),
        "processes": len(lives),
        "judged_s": round(warm[-1].at - warm[0].at) if warm else 0,
        "verdict": next((v for v in ("grows", "undecided") if v in verdicts), "flat"),
    }


def _an_hour(samples: list[tuple[float, float]]) -> Trend:
    found = trend(samples)
    return Trend(found.slope * _HOUR_S, found.error * _HOUR_S)


def _finite(error: float) -> float | None:
    """Return an error for JSON, which has no infinity."""
    return round(error, 2) if error < float("inf") else None
