"""The compiled scanner (`scanning`), lent to whoever asks once it is there; nobody waits for it.

What it does the interpreter does too, to the same end, only slower. So a worker begins without:
importing Numba takes half a second and compiling, once for a machine and version, some 20.
"""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
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
        module, folder = prepared()
        if not any(folder.rglob("*.nbi")):
            compile_elsewhere()
        warm(module)
    except Exception as error:  # Numba is not here, or not for this machine: slower, not wrong
        told = getattr(error, "stderr", None) or repr(error).encode()
        lines = told.decode(errors="replace").strip().splitlines()
        log.warning("scanner.missing", reason=lines[-1] if lines else repr(error))
        return False
    lend(module)
    log.info("scanner.loaded")
    return True


def prepared() -> tuple[Any, Path]:
    """Return the scanner, not compiled yet, and the folder where what is compiled of it is kept.

    One for each machine, Numba and text of the scanner: of the text Numba itself looks at one file
    only, and what is kept may outlive an image. Raises `ImportError`, `RuntimeError`.
    """
    numba, binding = import_module("numba"), import_module("llvmlite.binding")
    sources = Path(__file__).parents[1].joinpath(*_MODULE.split(".")).glob("*.py")
    about = [
        *(source.read_bytes() for source in sorted(sources)),
        *(sys.version, numba.__version__, binding.get_host_cpu_name()),
        binding.get_host_cpu_features().flatten(),
    ]
    digest = sha256(b"\0".join(x if isinstance(x, bytes) else x.encode() for x in about))
    folder = _cache_home(numba.config.CACHE_DIR) / digest.hexdigest()[:16]
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
    return Path(caches) / "headstart" / "scanner"


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


def warm(module: Any) -> None:
    """Have the scanner compiled, or read from where it is kept: its first call does."""
    Scan(RecordBatch("", 0, 0, 1, [0], [0], [None], [b"{}"]), 0, (), module)


if __name__ == "__main__":
    warm(prepared()[0])
