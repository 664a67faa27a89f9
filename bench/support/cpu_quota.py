"""A process held to a share of one core by the kernel, as a container's limit holds one.

So several workers can be compared with one where cores are too few for them: each has the same
share, and what they share (broker, Redis, each other's coming and going) is all that can slow them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PERIOD_US: Final = 20_000
_ROOT: Final = Path("/sys/fs/cgroup")
_numbers: Final = itertools.count()


@contextmanager
def share(cores: float) -> Iterator[Path]:
    """Yield a group whose processes take at most so many cores together; see `join`.

    Raises `PermissionError` where the controller is not to be had: it takes root, and cgroup v1 or
    a cgroup v2 that delegates `cpu`.
    """
    name, quota = f"headstart-bench-{os.getpid()}-{next(_numbers)}", round(cores * PERIOD_US)
    group = next((path / name for path in (_ROOT / "cpu", _ROOT) if path.is_dir()), _ROOT / name)
    try:
        group.mkdir()
    except OSError as error:
        raise PermissionError(f"{group} cannot be made ({error.strerror}): run as root") from error
    try:
        _limit(group, quota)
        yield group
    finally:
        group.rmdir()


def _limit(group: Path, quota: int) -> None:
    try:
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
    except OSError as error:
        raise PermissionError(f"{error.filename}: no cpu controller ({error.strerror})") from error


def join(group: Path, process: int) -> None:
    """Put a process, with all its threads, into a group; what it starts is in it, too."""
    (group / "cgroup.procs").write_text(str(process))
