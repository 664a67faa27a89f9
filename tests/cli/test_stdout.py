"""Output that cannot be written: the error names standard output, whatever a command prints."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.processes import command_line

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has /dev/full")


@pytest.mark.parametrize(
    "command",
    [("config", "show"), ("config", "show", "--json"), ("--version",), ("up", "--help")],
    ids=" ".join,
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout(
    command: tuple[str, ...], unbuffered: str, tmp_path: Path
) -> None:
    kept = {name: value for name, value in os.environ.items() if "HEADSTART" not in name}
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            command_line(*command),
            cwd=tmp_path,
            env={**kept, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == "error: no space left on device: standard output\n"
