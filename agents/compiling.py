"""The compiled scanner (`scanning`), lent to whoever asks once it is there; nobody waits for it.

What it does the interpreter does too, to the same end, only slower. So a worker begins without:
importing Numba takes half a second and compiling, once for a machine and version, some 20.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import structlog

from processing.columns import Scan, lend, scanner
from processing.records import RecordBatch

log = structlog.get_logger()

COMPILE_S: Final = 600.0
_MODULE: Final = "processing.scanning"


def load() -> bool:
    """Have the scanner compiled where it is not, and lend it; return whether it can be had.

    Takes a while: for a thread, or before anything else. Compiling is another process's, at the
    lowest priority: it takes memory that would stay, and the interpreter's lock.
    """
    if scanner() is not None:
        return True
    try:
        module = import_module(_MODULE)
        if not _is_kept(module):
            compile_elsewhere()
        warm(module)
    except Exception as error:  # Numba is not here, or not for this machine: slower, not wrong
        told = getattr(error, "stderr", None) or repr(error).encode()
        last = told.decode(errors="replace").strip().splitlines()[-1]
        log.warning("scanner.missing", reason=last)
        return False
    lend(module)
    log.info("scanner.loaded")
    return True


def compile_elsewhere() -> None:
    """Compile the scanner and keep what comes of it. Raises `subprocess.SubprocessError`."""
    subprocess.run(
        ["nice", "-n", "19", sys.executable, "-m", "agents.compiling"],
        cwd=Path(__file__).parents[1],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=COMPILE_S,
    )


def _is_kept(module: Any) -> bool:
    """Return whether a compiled scanner is kept that is no older than any of its files.

    One that is goes: Numba itself looks at the file of the outermost function only.
    """
    sources = Path(module.__file__).parent.glob("*.py")
    written = max(source.stat().st_mtime for source in sources)
    kept = list(Path(module.scan._cache.cache_path).glob("*.scan-*.nbi"))
    for index in kept:
        if index.stat().st_mtime < written:
            index.unlink(missing_ok=True)
    return any(index.exists() for index in kept)


def warm(module: Any) -> None:
    """Have the scanner compiled, or read from where it is kept: its first call does."""
    Scan(RecordBatch("", 0, 0, 1, [0], [0], [None], [b"{}"]), 0, (), module)


if __name__ == "__main__":
    module = import_module(_MODULE)
    _is_kept(module)
    warm(module)
