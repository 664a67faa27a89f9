"""Loads the compiled kernels (`kernels.api`) and compiles them where no cache has them.

The interpreter computes the same results, only slower, so a worker starts without them: importing
Numba takes half a second, compiling about 20 s, once for each machine and version.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog

from headstart import calibration
from learners.outcome import Outcome
from processing.apply.scanned_batch import ScannedBatch
from processing.config import Objectives
from processing.contexts.context import Context, ContextPath
from processing.contexts.vectorized_update import update_from_rows
from processing.kernel_handle import install_kernels, kernels
from processing.records import batch
from processing.records.batch import RecordBatch
from processing.records.columnar import words_in
from processing.state import counters, packed_state
from processing.state.counters import outcome_row
from topics.kafka import limits

log = structlog.get_logger()

COMPILE_S: Final = 600.0
COMPLETE: Final = "complete"
"""Marks a cache in which everything is compiled. An interrupted one is completed elsewhere."""
SHIPPED: Final = Path(sys.prefix) / "machine_code"
"""Compiled when an image was built (deploy/Dockerfile). It is copied before it is used, because
Numba uses no cache that it cannot write to."""
_LOCK: Final = "compiling.lock"
_LOWEST: Final = 19
"""Niceness of the process that compiles."""
_WITH_PARENT: Final = "--with-parent"
_NOW: Final = "--now"
"""Compile at normal priority: nothing else is served meanwhile."""
_MODULE: Final = "kernels.api"
_SOURCES: Final = ("kernels", "learners")
_started: Final = threading.Lock()
"""Held once `load_in_background` has started its thread."""
_PARTS: Final = (calibration, limits, packed_state, batch, counters)
"""Other modules of which something is compiled."""


def load() -> bool:
    """Load the kernels for this process, compile them first if needed; return whether that worked.

    Blocks for seconds. Compilation runs in another process at the lowest priority, because it takes
    the interpreter's lock and memory that would not be released.
    """
    if kernels() is not None:
        return True
    try:
        module, folder = prepared()
        if not (folder / COMPLETE).exists() and not copy_shipped(folder):
            compile_elsewhere()
        warm(module)
    except Exception as error:  # no Numba, or not for this machine: slower, not wrong
        message = getattr(error, "stderr", None) or repr(error).encode()
        lines = message.decode(errors="replace").strip().splitlines()
        if structlog.is_configured():
            log.warning("kernels.unavailable", reason=lines[-1] if lines else repr(error))
        return False
    install_kernels(module)
    if structlog.is_configured():  # else this is a command, whose stdout is its result
        log.info("kernels.loaded")
    return True


def load_in_background() -> None:
    """Start a thread that loads the kernels; do nothing where this process has started one."""
    if not _started.locked() and _started.acquire(blocking=False):
        threading.Thread(target=load, name="kernels", daemon=True).start()


def prepared() -> tuple[Any, Path]:
    """Return the module, not compiled yet, and the folder of its compiled code.

    There is one folder for each machine, version of Numba, and content, path and time of the source
    files. Numba itself compares one file only, and the cache may outlive an image; compiled code of
    another path or time is rejected by Numba, which would compile it again in this process.
    Raises `ImportError`, `RuntimeError`.
    """
    os.environ["NUMBA_DISABLE_INTEL_SVML"] = "1"  # its exp differs from Python's in the last bit
    numba, binding = import_module("numba"), import_module("llvmlite.binding")
    root = Path(__file__).parents[1]
    sources = [source for folder in _SOURCES for source in sorted((root / folder).glob("*.py"))]
    sources += [Path(str(module.__file__)) for module in _PARTS]
    about = [
        *(source.read_bytes() for source in sources),
        *(f"{source} {source.stat().st_mtime_ns}" for source in sources),
        *(sys.version, numba.__version__, binding.get_host_cpu_name()),
        binding.get_host_cpu_features().flatten(),
    ]
    digest = sha256(b"\0".join(x if isinstance(x, bytes) else x.encode() for x in about))
    folder = _cache_home(os.environ.get("NUMBA_CACHE_DIR", "")) / digest.hexdigest()[:16]
    numba.config.CACHE_DIR = str(folder)
    module = import_module(_MODULE)
    if folder not in Path(module.scan._cache.cache_path).parents:
        raise RuntimeError(f"cannot cache compiled kernels in {folder}")
    return module, folder


def _cache_home(chosen: str) -> Path:
    """Return the folder that NUMBA_CACHE_DIR names, or ours in the user's cache folder."""
    if chosen:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "headstart" / "machine_code"


def copy_shipped(folder: Path) -> bool:
    """Copy what an image has for this machine to `folder`; return whether there was anything."""
    source = SHIPPED / folder.name
    if not (source / COMPLETE).exists():
        return False
    with _locked(folder):
        if not (folder / COMPLETE).exists():
            ignored = shutil.ignore_patterns(COMPLETE, _LOCK)
            shutil.copytree(source, folder, ignore=ignored, dirs_exist_ok=True)
            (folder / COMPLETE).touch()
    return True


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make a folder, and let one process at a time write to it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def compile_elsewhere() -> None:
    """Compile everything in another process. Raises `subprocess.SubprocessError`.

    That process ends with this one, however this one ends: it reads a pipe that then closes.
    """
    argv = [sys.executable, "-P", "-m", "kernels.loader", _WITH_PARENT]
    with subprocess.Popen(
        argv,
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # else it shares the priority of the worker's session
    ) as process:
        assert process.stderr is not None
        limit = threading.Timer(COMPILE_S, process.kill)
        limit.daemon = True
        limit.start()
        try:
            errors = process.stderr.read()
        finally:
            limit.cancel()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv, stderr=errors)


def compile_here() -> None:
    """Compile everything in this process, one process at a time, and note that it is complete."""
    module, folder = prepared()
    with _locked(folder):  # one that waited finds everything compiled
        warm(module)
        (folder / COMPLETE).touch()


def _end_with_parent() -> None:
    # Read until the parent closes stdin or ends; not by sys.stdin, because holding its lock at
    # interpreter exit is a fatal error.
    while os.read(0, 4_096):
        pass
    os._exit(1)


def _lower_priority() -> None:
    """Take the lowest priority. `deploy/process_priority.py` cannot be imported from here."""
    with contextlib.suppress(OSError):
        os.nice(_LOWEST)
        if os.getsid(0) == os.getpid():
            Path("/proc/self/autogroup").write_text(str(_LOWEST))


def warm(module: Any) -> None:
    """Call everything once, which compiles it or loads it from the cache."""
    scan = ScannedBatch(RecordBatch("", 0, 0, 1, [0], [0], [None], [b"{}"]), range(1), (), module)
    _ = scan.path_keys
    nothing, state = np.frombuffer(b"", np.uint8), np.zeros(module.STATE, np.int64)
    columns = np.empty((module.records_in(nothing, 0, 0), module.COLUMNS), np.int64)
    module.unpack(words_in(np.zeros(9, np.uint8)), nothing, 0, 0, True, 0, 1, state, columns)
    for kind in module.RULES:
        policy = kind()
        context = Context("", "", policy, policy.initial())
        path = ContextPath(("", ""), [context], [(policy, [context])])
        update_from_rows(
            module.rule_of(policy), Objectives(), [outcome_row(Outcome(0.5, True), path)], module
        )


if __name__ == "__main__":
    if _NOW not in sys.argv:
        _lower_priority()
    if _WITH_PARENT in sys.argv:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    compile_here()
