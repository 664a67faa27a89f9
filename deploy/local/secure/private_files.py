"""Writes files with secrets, which no other user can read at any moment."""

from __future__ import annotations

import os
from pathlib import Path

from deploy.local.service_account import Account


def write_private(path: Path, text: str, account: Account | None = None) -> None:
    """Write a file that only this user, or `account`, can read; replaces one that exists."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        if account is not None:
            os.fchown(descriptor, account.uid, account.gid)
