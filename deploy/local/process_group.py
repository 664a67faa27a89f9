"""Starts child processes, each with a log file, a lock and a parent death signal.

Each child inherits the descriptor of a locked file (`locks/<name>.lock`), and so do its own
children. The lock is released when the last of them has ended, so a new start can wait for the
orphans of a killed one without relying on process ids.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.local.child_process import Child, Ending, end_all
from deploy.local.errors import StackError, naming
from deploy.local.parent_death import parent_death_watch
from deploy.local.service_account import Account
from deploy.process_priority import add_niceness

_ORPHAN_SECONDS = 5.0
_KILLED_SECONDS = 2.0
_LOG_LIMIT = 8 << 20


class ProcessGroup:
    """The child processes of one stack, in the order they were started."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._locks: dict[str, int] = {}
        self._children: list[Child] = []
        for folder in ("logs", "locks"):
            (data / folder).mkdir(exist_ok=True)
        self._lifeline = parent_death_watch()

    @property
    def children(self) -> tuple[Child, ...]:
        """The children that were not forgotten."""
        return tuple(self._children)

    def claim(self, name: str) -> None:
        """Take the lock of a name, once no process of an earlier run holds it.

        An orphan that does not exit is killed. Raises `StackError` if that fails.
        """
        path = self.data / "locks" / f"{name}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._locks[name] = descriptor
        if _locked(descriptor, _ORPHAN_SECONDS):
            return
        orphan = int(os.pread(descriptor, 32, 0) or 0)
        if _has_open(orphan, path):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(orphan, signal.SIGKILL)
        if not _locked(descriptor, _KILLED_SECONDS):
            raise StackError(
                f"{name} of an earlier run (process {orphan}) still uses {self.data}: end it first"
            )

    def spawn(
        self,
        name: str,
        argv: Sequence[str],
        ending: Ending,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        account: Account | None = None,
        niceness: int = 0,
    ) -> Child:
        """Start a process under a claimed name, in its own session.

        `niceness`: added to its niceness, if the system permits it.
        """
        lock = self._locks[name]
        log = self.data / "logs" / f"{name}.log"
        if log.exists() and log.stat().st_size > _LOG_LIMIT:
            log.replace(log.with_suffix(".log.1"))
        with log.open("ab") as output:
            start = output.tell()  # before the child, which shares the file position, moves it
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=env,
                    cwd=cwd,
                    pass_fds=(lock,),
                    # Ctrl-C in the terminal reaches only the parent, which stops them in order.
                    start_new_session=True,
                    user=account.uid if account else None,
                    group=account.gid if account else None,
                    extra_groups=[] if account else None,
                    # It takes no lock, so the linter's warning does not apply.
                    preexec_fn=self._lifeline.before_exec(ending.orphaned),  # noqa: PLW1509
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise StackError(f"{name}: cannot run {argv[0]} ({error})") from error
            child = Child(name, process, ending, log, start)
        if niceness:
            add_niceness(niceness, process.pid)
        self._children.append(child)
        self._lifeline.follow(process.pid, ending.orphaned)
        with naming(self.data / "locks" / f"{name}.lock"):
            # In place: a full disk has no room for a block that was just given back.
            os.ftruncate(lock, os.pwrite(lock, str(process.pid).encode(), 0))
        return child

    def forget(self, child: Child) -> None:
        """Forget a child that has exited."""
        self._children.remove(child)
        self._lifeline.release(child.pid)

    def launched(self) -> None:
        """Close our copies of the locks, so that only the children hold them."""
        for descriptor in self._locks.values():
            os.close(descriptor)
        self._locks.clear()

    def close(self) -> None:
        """End all children, the last started first."""
        end_all(self._children[::-1])
        for child in self.children:
            self.forget(child)
        self.launched()
        self._lifeline.close()


def _locked(descriptor: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(0.02)


def _has_open(pid: int, path: Path) -> bool:
    """Return whether a process has the file open: the process id alone may have been reused."""
    if pid <= 1 or pid == os.getpid():
        return False
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if link.samefile(path):
                    return True
    return False
