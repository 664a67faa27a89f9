"""Chooses an unprivileged account for Postgres, which refuses to run as root."""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import StackError

_CANDIDATES = ("nobody", "daemon", "postgres")


@dataclass(frozen=True)
class Account:
    """An account of this machine."""

    name: str
    uid: int
    gid: int

    def runs(self, *argv: str, cwd: Path | None = None) -> bool:
        """Return whether a command succeeds as this account, which respects ACLs and namespaces."""
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=cwd or "/",
                user=self.uid,
                group=self.gid,
                extra_groups=[],
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return done.returncode == 0

    def enters(self, directory: Path | str, cwd: Path | None = None) -> bool:
        """Return whether it may traverse all parents of a directory and enter it."""
        return self.runs("/bin/sh", "-c", 'cd -- "$1"', "sh", str(directory), cwd=cwd)


def unprivileged(existing: Path) -> Account | None:
    """Return the account to run Postgres: None (this user) unless this process runs as root.

    For root: the owner of existing data, else a common system account.
    """
    owner = existing.stat().st_uid if existing.exists() else None
    if os.geteuid() != 0:
        if owner not in (None, os.geteuid()):
            raise StackError(
                f"{existing} belongs to user {owner}: start as that user (or root), "
                "or choose another data directory"
            )
        return None
    if owner:
        return Account(str(owner), owner, existing.stat().st_gid)
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        account = Account(name, entry.pw_uid, entry.pw_gid)
        if entry.pw_uid != 0 and account.runs("/bin/sh", "-c", ":"):
            return account
    raise StackError(
        "Postgres does not run as root, and none of the accounts "
        f"{', '.join(_CANDIDATES)} can be used: start as an ordinary user, or give a Postgres DSN"
    )
