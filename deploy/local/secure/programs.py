"""Finds the programs that a secured stack needs: servers that are built with TLS, and openssl.

The servers of the Python wheels are built without TLS.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from deploy.local.errors import StackError

_DEBIAN: Final = Path("/usr/lib/postgresql")
_TLS: Final = b"libssl.so"
"""Among the names of the libraries that a program loads."""
_SETINFO: Final = (7, 2)
"""Redis of this version has the command `client|setinfo`; an older one refuses an ACL with it."""


def require_programs() -> None:
    """Raise `StackError` if a program is missing: one line with the packages to install."""
    missing = [
        package
        for package, found in {
            "openssl": shutil.which("openssl"),
            "openjdk-17-jre-headless": shutil.which("java"),
            "maven": shutil.which("mvn"),
            "postgresql": _postgres(),
            "redis-server": _redis(),
        }.items()
        if found is None
    ]
    if missing:
        raise StackError(
            "--secure needs openssl, Java 17, Maven, and builds of Postgres and Redis with TLS, "
            f"and did not find all of them: install {', '.join(missing)} (names of Debian's "
            f"packages: apt install {' '.join(missing)})"
        )


def postgres_installation() -> Path:
    """Return the folder whose `bin` has the newest `postgres` with TLS. Raises `StackError`."""
    found = _postgres()
    if found is None:
        raise StackError("no postgres with TLS was found: install postgresql")
    return found


def redis_server() -> Path:
    """Return the path of `redis-server`. Raises `StackError`."""
    found = _redis()
    if found is None:
        raise StackError("no redis-server with TLS was found: install redis-server")
    return found


def knows_setinfo(server: Path) -> bool:
    """Return whether this `redis-server` has the command `client|setinfo`."""
    shown = subprocess.run([server, "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"v=(\d+)\.(\d+)", shown.stdout)
    return version is not None and (int(version[1]), int(version[2])) >= _SETINFO


def _postgres() -> Path | None:
    versions = [each for each in _DEBIAN.glob("*") if each.name.isdecimal()]
    folders = sorted(versions, key=lambda each: int(each.name), reverse=True)
    if on_path := shutil.which("postgres"):
        folders.append(Path(on_path).resolve().parent.parent)
    return next(
        (
            folder
            for folder in folders
            if _has_tls(folder / "bin" / "postgres") and (folder / "bin" / "initdb").exists()
        ),
        None,
    )


def _redis() -> Path | None:
    found = shutil.which("redis-server")
    return Path(found) if found and _has_tls(Path(found)) else None


def _has_tls(program: Path) -> bool:
    try:
        return _TLS in program.read_bytes()
    except OSError:
        return False
