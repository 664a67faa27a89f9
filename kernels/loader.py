"""Loads the compiled kernels (`kernels.api`) and compiles them where no cache has them.

The interpreter computes the same results, only slower, so a worker starts without them: importing
Numba takes half a second, compiling about 20 s, once for each machine and version.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
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
"""The file that says that everything is compiled: what was cut short would be finished here."""
_LOCK: Final = "compiling.lock"
_LOWEST: Final = 19
"""Niceness of the process that compiles."""
_WITH_PARENT: Final = "--with-parent"
_MODULE: Final = "kernels.api"
_SOURCES: Final = ("kernels", "learners")
_started: Final = threading.Lock()
"""Held once `load_in_background` has started its thread."""
_PARTS: Final = (calibration, limits, packed_state, batch, counters)
"""Modules besides, of which something is compiled."""


def load() -> bool:
    """Load the kernels for this process, compiled first if need be; return whether they are there.

    This blocks for seconds. Compilation runs in another process at the lowest priority, because it
    takes memory that would not be released, and the interpreter's lock.
    """
    if kernels() is not None:
        return True
    try:
        module, folder = prepared()
        if not (folder / COMPLETE).exists():
            compile_elsewhere()
        warm(module)
    except Exception as error:  # Numba is not here, or not for this machine: slower, not wrong
        told = getattr(error, "stderr", None) or repr(error).encode()
        lines = told.decode(errors="replace").strip().splitlines()
        log.warning("machine_code.missing", reason=lines[-1] if lines else repr(error))
        return False
    install_kernels(module)
    log.info("machine_code.loaded")
    return True


def load_in_background() -> None:
    """Start a thread that loads the kernels; do nothing where this process has started one."""
    if not _started.locked() and _started.acquire(blocking=False):
        threading.Thread(target=load, name="kernels", daemon=True).start()


def prepared() -> tuple[Any, Path]:
    """Return the module, not compiled yet, and the folder where what is compiled of it is kept.

    One for each machine, Numba, text of what is compiled, place and time of its files. Numba itself
    looks at one file only, and what is kept may outlive an image; what is of another place or time
    it does not take, and would compile it anew in this process. Raises `ImportError`,
    `RuntimeError`.
    """
    os.environ["NUMBA_DISABLE_INTEL_SVML"] = "1"  # its exp is another than Python's, in a last bit
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
        raise RuntimeError(f"what is compiled cannot be kept in {folder}")
    return module, folder


def _cache_home(chosen: str) -> Path:
    """Return the folder that NUMBA_CACHE_DIR names, or ours below the user's caches."""
    if chosen:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "headstart" / "machine_code"


def compile_elsewhere() -> None:
    """Compile everything and keep what comes of it. Raises `subprocess.SubprocessError`.

    The process ends with this one, however this one ends: it reads a pipe that then closes.
    """
    argv = [sys.executable, "-P", "-m", "kernels.loader", _WITH_PARENT]
    with subprocess.Popen(
        argv,
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # or it goes as far ahead as the worker that it is for
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
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who waited finds everything compiled
        warm(module)
        (folder / COMPLETE).touch()


def _end_with_parent() -> None:
    # Until the parent closes it, or ends. Not by sys.stdin, whose lock held here is a fatal error
    # as the interpreter ends.
    while os.read(0, 4_096):
        pass
    os._exit(1)


def _lower_priority() -> None:
    """Take the lowest priority; see `deploy/process_priority.py`, which is not below this one."""
    with contextlib.suppress(OSError):
        os.nice(_LOWEST)
        if os.getsid(0) == os.getpid():
            Path("/proc/self/autogroup").write_text(str(_LOWEST))


def warm(module: Any) -> None:
    """Have everything compiled, or read from where it is kept: its first call does."""
    scan = ScannedBatch(RecordBatch("", 0, 0, 1, [0], [0], [None], [b"{}"]), range(1), (), module)
    _ = scan.place_keys
    nothing, state = np.frombuffer(b"", np.uint8), np.zeros(module.STATE, np.int64)
    columns = np.empty((module.records_in(nothing, 0, 0), module.COLUMNS), np.int64)
    module.unpack(words_in(np.zeros(9, np.uint8)), nothing, 0, 0, True, 0, 1, state, columns)
    for kind in module.RULES:
        policy = kind()
        context = Context("", "", policy, policy.initial())
        chain = ContextPath(("", ""), [context], [(policy, [context])])
        update_from_rows(
            module.rule_of(policy), Objectives(), [outcome_row(Outcome(0.5, True), chain)], module
        )


if __name__ == "__main__":
    _lower_priority()
    if _WITH_PARENT in sys.argv:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    compile_here()
