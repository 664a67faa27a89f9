"""Commands as processes of their own, where nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import Ended, run_command


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ended]:
    """Run a command in an empty directory, to its end."""

    def command(*arguments: str, stdin: str = "", **environment: str) -> Ended:
        return run_command(*arguments, folder=tmp_path, stdin=stdin, environment=environment)

    return command
