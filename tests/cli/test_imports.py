"""What help, completion and a slip of the pen do not wait for: nothing heavy is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.processes import command_line

# pydantic is not among them: typer itself imports it as soon as it parses a command's options.
HEAVY = {"aiohttp", "aiokafka", "faust", "msgspec", "mode", "psycopg", "redis",
         "rich", "rocksdict", "structlog", "settings", "deploy", "delivery", "processing",
         "replay", "sinks", "watching", "learners"}  # fmt: skip

_RUN = """
import sys
from headstart.cli import main
sys.argv = ["headstart", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
print("\\nimported", *{name.partition(".")[0] for name in sys.modules})
"""


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("thresholds", "--help"), ("thresholds", "show", "--help"), ("top", "--help"),
     ("--show-completion", "bash"), ("statsu",), ("status", "--nonsense")],
    ids=" ".join,
)  # fmt: skip
def test_nothing_heavy_is_imported(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", _RUN, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    last = ended.stdout.splitlines()[-1]
    assert last.startswith("imported ")
    assert "cli" in last.split()
    assert HEAVY & set(last.split()) == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion(shell: str) -> None:
    command = command_line("--show-completion", shell)
    # Else typer looks at the processes above it, and where none is a shell it knows none.
    environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "headstart" in ended.stdout or "_COMPLETE" in ended.stdout.upper()
