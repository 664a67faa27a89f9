"""The container engine: what it lacks, and the project of docker-compose.yml that runs on it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

from deploy.local import Addresses
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PROJECT = "headstart-test"
IMAGE = "headstart:0.1.0"
PULL_S = 300.0


class EngineFailed(AssertionError):
    """A command of the engine did not end with 0."""


def run(*words: str, environment: dict[str, str] | None = None, limit_s: float = 600.0) -> str:
    """Run a command; return what it wrote on stdout. Raises `EngineFailed`."""
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        timeout=limit_s, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        raise EngineFailed(f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def no_engine() -> str | None:
    """Return why no container engine can be used; None: one answers."""
    if shutil.which("docker") is None:
        return "docker is not on PATH"
    try:
        run("docker", "info", limit_s=60)
    except (EngineFailed, subprocess.TimeoutExpired) as error:
        return f"no daemon answers docker info: {str(error).strip().splitlines()[-1]}"
    return None


def missing() -> str | None:
    """Return what the engine lacks to run the test; None: nothing. Pulls images that are absent."""
    if lacks := no_engine():
        return lacks
    for image in base_images():
        try:
            run("docker", "image", "inspect", image)
        except EngineFailed:
            try:
                run("docker", "pull", "--quiet", image, limit_s=PULL_S)
            except (EngineFailed, subprocess.TimeoutExpired):
                return f"the engine does not have the image {image}, and cannot pull it"
    return None


def base_images() -> list[str]:
    """Return the images of others that docker-compose.yml and the Dockerfile name."""
    file, recipe = ROOT / "docker-compose.yml", ROOT / "deploy" / "Dockerfile"
    found = {
        *re.findall(r"(?m)^ +image: (\S+)", file.read_text()),
        *re.findall(r"(?m)^FROM (\S+)", recipe.read_text()),
    }
    return sorted(found - {IMAGE})


class Project:
    """The containers of one run, with passwords and ports of their own."""

    def __init__(self) -> None:
        ports = {name: free_port() for name in ("KAFKA", "REDIS", "POSTGRES")}
        passwords = {name: secrets.token_hex(12) for name in ("POSTGRES", "REDIS")}
        self.passwords = tuple(passwords.values())
        self._environment = {
            **{key: value for key, value in os.environ.items() if "HEADSTART" not in key},
            **{f"{name}_PORT": str(port) for name, port in ports.items()},
            **{f"{name}_PASSWORD": value for name, value in passwords.items()},
        }
        postgres = f"headstart:{passwords['POSTGRES']}@127.0.0.1:{ports['POSTGRES']}/headstart"
        self.addresses = Addresses(
            kafka=f"127.0.0.1:{ports['KAFKA']}",
            postgres=f"postgresql://{postgres}",
            redis=f"redis://:{passwords['REDIS']}@127.0.0.1:{ports['REDIS']}/0",
        )
        """On the host."""
        self._killer: subprocess.Popen[str] | None = None
        self._tree = ROOT

    def of(self, tree: Path) -> Project:
        """Return the same project as the docker-compose.yml of another tree describes it."""
        other = copy(self)
        other._tree = tree
        return other

    def compose(self, *words: str) -> str:
        """Run a command of Compose on both profiles; return its stdout. Raises `EngineFailed`."""
        published = ROOT / "tests" / "compose" / "published.yml"
        files = ["-f", str(self._tree / "docker-compose.yml"), "-f", str(published)]
        place = ["-p", PROJECT, "--project-directory", str(self._tree)]
        profiles = ["--profile", "core", "--profile", "demo"]
        tool = str(Path(sys.executable).parent / "docker-compose")
        return run(tool, *place, *files, *profiles, *words, environment=self._environment)

    def down(self) -> None:
        """Remove containers and volumes, also those of an interrupted run."""
        with suppress(EngineFailed):
            self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5")

    def container(self, service: str) -> dict[str, Any]:
        """Return what the engine knows of a service's container."""
        name = self.compose("ps", "--all", "--quiet", service).strip()
        assert name, f"{service} has no container"
        found: dict[str, Any] = json.loads(run("docker", "inspect", name))[0]
        return found

    def log(self, service: str, since: float) -> str:
        """Return what a service has written since a Unix time, of all its starts."""
        words = ["docker", "logs", "--since", f"{since:.3f}", self.container(service)["Id"]]
        return subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        ).stdout

    def exec(self, service: str, *words: str) -> str:
        """Run a command in a service's container; return its stdout."""
        return self.compose("exec", "-T", service, *words)

    def kill(self, service: str) -> float:
        """Kill the first process of a container, as the kernel would; return when, in Unix s.

        Not by `docker kill`: the engine does not restart what it was asked to kill. Returns at
        once: the engine may need seconds to remove the container that kills.
        """
        self.wait()
        pid = self.container(service)["State"]["Pid"]
        script = f"import os, time; print(time.time(), flush=True); os.kill({pid}, 9)"
        options = ["--rm", "--pid=host", "--user=0", "--network=none", "--entrypoint=python"]
        self._killer = subprocess.Popen(
            ["docker", "run", *options, IMAGE, "-c", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._killer.stdout is not None
        since = self._killer.stdout.readline()
        if not since:
            self.wait()
        return float(since)

    def wait(self) -> None:
        """Wait until the last `kill` has ended. Raises `EngineFailed`."""
        killer, self._killer = self._killer, None
        if killer is not None:
            killer.communicate()
            if killer.returncode:
                raise EngineFailed(f"the container that kills ended with {killer.returncode}")

    def healthy(self, service: str) -> bool:
        """Return whether the engine calls a service healthy."""
        state = self.container(service)["State"]
        return bool(state["Running"]) and state.get("Health", {}).get("Status") == "healthy"
