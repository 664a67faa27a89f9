"""What is done to the containers, one step after the other, and what is measured."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import Checked
from tests.compose.engine import IMAGE, EngineFailed, Project, run
from tests.compose.goals import Goals
from tests.compose.load import Load
from tests.patience import until

SERVICES = ("redis", "postgres", "kafka")
WORKERS = ("history", "predictions", "memory", "episodes", "thresholds")
PATIENCE_S = 300.0


def timed(call: Callable[[], object]) -> float:
    """Return how many seconds a call took."""
    begun = time.monotonic()
    call()
    return round(time.monotonic() - begun, 1)


def confined(project: Project) -> dict[str, str]:
    """Check that each container has no rights, limits, and no password among its arguments.

    Return the memory that each uses.
    """
    used = {}
    for service in (*SERVICES, *WORKERS):
        found = project.container(service)
        host, status = found["HostConfig"], project.exec(service, "cat", "/proc/1/status")
        fields = dict(re.findall(r"(?m)^(\w+):\s+(\S+)", status))
        assert fields["Uid"] != "0", f"{service} runs as root"
        assert int(fields["CapBnd"], 16) == 0, f"{service} has capabilities {fields['CapBnd']}"
        assert fields["NoNewPrivs"] == "1", service
        assert host["ReadonlyRootfs"], service
        assert host["Memory"] > 0, service
        assert {"max-size", "max-file"} <= host["LogConfig"]["Config"].keys(), service
        arguments = json.dumps([found["Args"], found["Config"]["Healthcheck"]])
        arguments += project.exec(service, "cat", "/proc/1/cmdline")
        assert not [each for each in project.passwords if each in arguments], service
        memory = run("docker", "stats", "--no-stream", "--format", "{{.MemUsage}}", found["Id"])
        used[service] = memory.partition("/")[0].strip()
    return used


def compiled(project: Project) -> None:
    """Check that the image has compiled kernels for this machine."""
    script = (
        "from kernels.loader import COMPLETE, SHIPPED, prepared\n"
        "print((SHIPPED / prepared()[1].name / COMPLETE).exists())"
    )
    assert project.exec("thresholds", "python", "-c", script).strip() == "True"


def all_healthy(project: Project) -> None:
    """Wait until the engine calls every container healthy."""
    for service in (*SERVICES, *WORKERS):
        until(
            lambda service=service: project.healthy(service),  # type: ignore[misc]
            PATIENCE_S, 1.0, seen=lambda service=service: service,  # type: ignore[misc]
        )  # fmt: skip


def demo(project: Project, folder: Path) -> None:
    """Run the profile demo to its report."""
    project.compose("up", "demo")
    state = project.container("demo")["State"]
    assert state["ExitCode"] == 0, project.compose("logs", "--tail", "30", "demo")
    project.compose("cp", "demo:/data/demo-report.html", str(folder))
    assert "won by" in (folder / "demo-report.html").read_text()


def foreign_folder(folder: Path) -> str:
    """Return what a worker says where its data folder belongs to another user."""
    taken = folder / "of-root"
    taken.mkdir(mode=0o555)
    with pytest.raises(EngineFailed) as raised:
        run("docker", "run", "--rm", "-v", f"{taken}:/data", IMAGE, "worker", "memory", "--watched")
    _command, *lines = str(raised.value).strip().splitlines()
    assert len(lines) == 1, lines
    assert "cannot write to /data" in lines[0], lines
    return lines[0]


def verified(project: Project, goals: Goals) -> dict[str, int]:
    """Return what `headstart verify` found over the whole log, in the container of a worker."""
    words = ("headstart", "verify", "--caught-up", "--json")
    try:
        found = json.loads(project.exec("thresholds", *words))
    except EngineFailed as error:
        goals.missed.append(f"headstart verify: {error}")
        return {}
    return {"events": found["events"], "rows": found["rows"], **found["counts"]}


def same_after_restart(
    project: Project, load: Load, first: Checked, goals: Goals
) -> dict[str, Any]:
    """Remove all containers and start them again; the volumes have everything."""
    project.compose("down")
    took = timed(lambda: project.compose("up", "-d", "--wait", *SERVICES, *WORKERS))
    until(lambda: load.check() == first, PATIENCE_S, 1.0, seen=load.check)
    return {"healthy_again_s": took, "verify": verified(project, goals)}
