"""Standard output: that cannot be written, and that is an output file of a command."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.support.output import claim_outputs, show_table
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


def test_tables_leave_only_the_standard_output_that_is_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, errors = io.StringIO(), io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setattr(sys, "stdout", first)
    claim_outputs("-")
    show_table(["of the first"], [])
    assert (first.getvalue(), errors.getvalue().split()) == ("", ["of", "the", "first"])
    monkeypatch.setattr(sys, "stdout", second)  # as of a later command in the same process
    show_table(["of the second"], [])
    assert second.getvalue().split() == ["of", "the", "second"]
