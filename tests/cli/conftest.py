"""Commands as processes of their own, where nothing runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

Ended = subprocess.CompletedProcess[str]
ENVIRONMENT = {name: value for name, value in os.environ.items() if "HEADSTART" not in name}


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ended]:
    """Run a command in an empty directory, to its end."""

    def command(*arguments: str, stdin: str = "", **environment: str) -> Ended:
        return subprocess.run(
            [sys.executable, "-m", "cli", *arguments],
            cwd=tmp_path,
            env={**ENVIRONMENT, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    return command


@pytest.fixture
def closed() -> Iterator[str]:
    """An address at which nothing can be listening: it is bound, and does not listen."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"
