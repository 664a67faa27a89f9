"""Every command of docker-compose.yml started for real, in its order, with its environment.

Outside of containers: addresses and ports are this machine's; all else is the file's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local import Addresses, Stack
from tests.patience import PATIENCE_S, STALLED, until
from tests.ports import free_port
from tests.processes import command_line
from tests.secured import stack_config

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.plain_only(reason="docker-compose.yml has services without TLS"),
]

FILE = Path(__file__).parents[2] / "docker-compose.yml"
SERVICES: dict[str, Any] = yaml.safe_load(FILE.read_text())["services"]
WORKERS = ("episodes", "thresholds", "history", "predictions", "memory")


@pytest.fixture
def services(broker: str, tmp_path: Path) -> Iterator[Addresses]:
    """Services on which nothing of ours has run yet."""
    with Stack(stack_config(data=tmp_path / "stack", kafka=broker)) as stack:
        yield stack.addresses


class Composed:
    """Starts services of the file as processes."""

    def __init__(self, at: Addresses, folder: Path) -> None:
        self._at = {"KAFKA": at.kafka, "POSTGRES": at.postgres, "REDIS": at.redis}
        self._folder = folder
        self.ports = {name: free_port() for name in WORKERS}

    def start(self, name: str) -> subprocess.Popen[str]:
        data = self._folder / name
        data.mkdir(exist_ok=True)
        given = {key: value for key, value in os.environ.items() if "HEADSTART" not in key}
        return subprocess.Popen(
            command_line(*self._command(name, data)), cwd=data, text=True,
            env=given | self._environment(name) | {"HEADSTART_DATA": str(data)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def _environment(self, name: str) -> dict[str, str]:
        found = {}
        for key, value in SERVICES[name]["environment"].items():
            part = key.removeprefix("HEADSTART_")
            found[key] = self._at.get(part, "" if "${" in str(value) else str(value))
            if part == "HEALTH":
                found[key] = value.replace("8080", str(self.ports[name]))
        return found

    def _command(self, name: str, data: Path) -> list[str]:
        command = []
        for each in SERVICES[name]["command"]:
            command.append("8" if each.startswith("${") else each.replace("/data/", f"{data}/"))
        return command

    def restart(self, running: dict[str, subprocess.Popen[str]]) -> None:
        """Start workers again that got no CPU for a session, as the file's `restart` does."""
        for name in WORKERS:
            if name in running and running[name].poll() is not None:
                output = running[name].communicate()  # closes its pipe
                assert running[name].returncode == STALLED, output
                running[name] = self.start(name)

    def until_ended(
        self, started: subprocess.Popen[str], running: dict[str, subprocess.Popen[str]]
    ) -> str:
        """Return the output of a service that ends without a signal."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with suppress(subprocess.TimeoutExpired):
                return started.communicate(timeout=0.5)[0]
            assert time.monotonic() < deadline
            self.restart(running)

    def healthy(self, name: str) -> bool:
        """What the engine would ask, with the file's own command."""
        kind, python, *rest = SERVICES[name]["healthcheck"]["test"]
        assert (kind, python) == ("CMD", "python")
        asked = [each.replace("8080", str(self.ports[name])) for each in rest]
        return subprocess.run([sys.executable, *asked], capture_output=True).returncode == 0  # noqa: PLW1510


def order() -> list[str]:
    """Ours, each after those that it waits for."""
    found: list[str] = []
    ours = [name for name, each in SERVICES.items() if "build" in each]
    while left := [name for name in ours if name not in found]:
        found.append(
            next(
                name for name in left if set(SERVICES[name]["depends_on"]) & set(ours) <= set(found)
            )
        )
    return found


def test_all_of_it_starts_and_ends(services: Addresses, tmp_path: Path) -> None:
    composed = Composed(services, tmp_path)
    running: dict[str, subprocess.Popen[str]] = {}
    assert order()[:2] == ["migrations", "topics"]
    try:
        for name in order():
            started = running[name] = composed.start(name)
            if name in WORKERS:
                continue
            if name == "demo":  # 30 seconds of it, and then some
                wait_healthy(composed, running)
            output = composed.until_ended(started, running)
            assert started.returncode == 0, (name, output)
        assert "won by" in (tmp_path / "demo" / "demo-report.html").read_text()
        wait_healthy(composed, running)
        for name in WORKERS:
            running[name].send_signal(signal.SIGTERM)
            output, _ = running[name].communicate(timeout=60)
            assert running[name].returncode == 0, (name, output)
    finally:
        for each in running.values():
            each.kill()
            each.wait()


def wait_healthy(composed: Composed, running: dict[str, subprocess.Popen[str]]) -> None:
    for name in WORKERS:
        until(
            lambda name=name: composed.healthy(name),  # type: ignore[misc]
            pause_s=0.5, meanwhile=lambda: composed.restart(running), seen=lambda name=name: name,  # type: ignore[misc]
        )  # fmt: skip
