"""The lock of a data directory, held for the life of the process, and `stack.json`.

The lock (flock on `stack.lock`) is authoritative, because the kernel releases it even after
kill -9; the JSON file only describes its holder. Locks of child processes are in
`process_group.py`.
"""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from deploy.local.config import Addresses
from deploy.local.errors import AlreadyRunning, naming, unusable
from headstart.scrubbing.masking import masked

_PROBE_SECONDS = 0.5
_held: set[int] = set()


def _forget_in_fork() -> None:
    # A forked child shares its parent's lock, and would hold it after the parent's death.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_fork)


@dataclass(frozen=True)
class RunningStack:
    """The process that holds a data directory."""

    pid: int
    addresses: Addresses | None
    """None while it is starting or stopping"""
    children: Mapping[str, int] = field(default_factory=dict)
    """process ids by name: broker, postgres, redis"""
    started_at: float | None = None
    """Unix seconds"""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """number of restarts by name, for children that were restarted"""

    def __str__(self) -> str:
        if self.addresses is None:
            return f"process {self.pid}, starting or stopping"
        at = self.addresses
        parts = f"Kafka {at.kafka}, Postgres {masked(at.postgres)}, Redis {masked(at.redis)}"
        return f"process {self.pid}: {parts}"


def running(data: Path) -> RunningStack | None:
    """Return the process that holds the data directory, None if none does."""
    try:
        descriptor = os.open(data / "stack.lock", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _described(data, os.pread(descriptor, 32, 0))
    finally:
        os.close(descriptor)
    return None


def _described(data: Path, holder: bytes) -> RunningStack:
    pid = int(holder or 0)
    try:
        found = json.loads((data / "stack.json").read_text())
        if found["pid"] != pid:  # left by a killed process; its successor has yet to remove it
            return RunningStack(pid, None)
        return RunningStack(
            pid,
            Addresses(**found["addresses"]),
            found["children"],
            found["started_at"],
            found.get("restarts", {}),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return RunningStack(pid, None)


class DataDirectoryLock:
    """The lock on one data directory, from `acquire` to `release` or the end of the process."""

    def __init__(self, data: Path, descriptor: int) -> None:
        self._data = data
        self._descriptor = descriptor
        self._started_at = time.time()

    @classmethod
    def acquire(cls, data: Path) -> Self:
        """Create the directory if needed and lock it. Raises `AlreadyRunning` and `StackError`."""
        try:
            data.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(data / "stack.lock", flags, 0o644)
        except OSError as error:
            raise unusable(data, error) from None
        try:
            _lock(descriptor, data)
            with naming(data / "stack.lock"):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            (data / "stack.json").unlink(missing_ok=True)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise unusable(data, error) from None
            raise
        _held.add(descriptor)
        return cls(data, descriptor)

    def announce(
        self,
        addresses: Addresses,
        children: Mapping[str, int],
        restarts: Mapping[str, int] | None = None,
    ) -> None:
        """Write `stack.json` once every service answers."""
        path = self._data / "stack.json"
        part = path.with_suffix(".json.part")
        part.unlink(missing_ok=True)
        state = {
            "pid": os.getpid(),
            "addresses": asdict(addresses),
            "children": dict(children),
            "started_at": self._started_at,
            "restarts": dict(restarts or {}),
        }
        # 0600: a configured DSN may contain a password.
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with naming(part), os.fdopen(descriptor, "w") as file:
            json.dump(state, file, indent=2)
        part.replace(path)

    def release(self) -> None:
        """Remove `stack.json` and release the lock."""
        (self._data / "stack.json").unlink(missing_ok=True)
        _held.discard(self._descriptor)
        os.close(self._descriptor)


def _lock(descriptor: int, data: Path) -> None:
    deadline = time.monotonic() + _PROBE_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # `running` takes the lock for an instant, too; only a stack keeps it.
            if time.monotonic() > deadline:
                break
        time.sleep(0.02)
    holder = _described(data, os.pread(descriptor, 32, 0))
    raise AlreadyRunning(
        f"a stack runs on {data} already ({holder}): use its addresses, end that process, "
        "or choose another data directory"
    )
