"""Master keys for tests, and how to give them to a process."""

from __future__ import annotations

import base64

import pytest

from sinks.postgres.encryption.master_keys import VARIABLE
from sinks.postgres.encryption.sealing import DataKey


def line(name: str, byte: int) -> str:
    """Return a key as a line of the key file."""
    return f"{name}:{base64.b64encode(bytes([byte]) * 32).decode()}"


OLD, NEW = line("k1", 1), line("k2", 2)
KEY = DataKey("acme", 1, b"\x07" * 32)


def give(patching: pytest.MonkeyPatch, *lines: str) -> None:
    """Have this process use these master keys from now on."""
    patching.setenv(VARIABLE, ",".join(lines))
