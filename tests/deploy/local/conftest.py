"""What the tests of the local stack share: throw-away stacks, and owners in other processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.local import Addresses, Stack, StackConfig

OWNER = Path(__file__).with_name("owner.py")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Stacks on one data directory, stopped after the test whatever happens."""
    made: list[Stack] = []

    def build(**options: object) -> Stack:
        made.append(Stack(StackConfig(data=tmp_path / "data", **options)))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for stack in reversed(made):
        stack.stop()


@dataclass
class Owner:
    """A process that runs a stack until it is killed."""

    process: subprocess.Popen[str]
    addresses: Addresses
    pids: dict[str, int]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Callable[[str], Owner]]:
    """Start `owner.py` in a given way on the test's data directory."""
    started: list[subprocess.Popen[str]] = []

    def start(how: str = "stack") -> Owner:
        process = subprocess.Popen(
            [sys.executable, str(OWNER), how, str(tmp_path / "data")],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        output = json.loads(process.stdout.readline())
        return Owner(process, Addresses(**output["addresses"]), output["pids"])

    yield start
    for process in started:
        process.kill()
        process.communicate()
