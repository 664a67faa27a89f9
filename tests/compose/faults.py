"""Kills containers, stops their processes, and measures how long until that is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.flow import Flow
from tests.compose.engine import Project
from tests.compose.goals import FRESH_IDLE_S, RESTARTED_S, Goals
from tests.compose.load import TENANT, Load
from tests.compose.stages import complaints, stages, started_after
from tests.compose.steps import PATIENCE_S, SERVICES, WORKERS
from tests.compose.trickle import IDLE_TENANT, Trickle
from tests.patience import until

KILLED = (*SERVICES, *WORKERS, "thresholds", "thresholds")
PAUSE_S = 6.0
"""Between one fault and the next."""
CAUGHT_UP_S = 5.0
"""How old the stalest threshold may be before a fault, so that no backlog counts as its delay."""

Echo = Callable[[str], None]


def kill_each(
    project: Project, load: Load, fresh_s: float, goals: Goals, echo: Echo
) -> list[dict[str, Any]]:
    """Kill each container in turn; return how long until thresholds were fresh after each.

    `fresh_s`: at most, after the death of a worker.
    """
    found = []
    with Flow(project.addresses.redis, TENANT) as flow:
        until(lambda: flow.fresh(0), PATIENCE_S)
        time.sleep(PAUSE_S)
        for service in KILLED:
            until(lambda: flow.stalest_s() < CAUGHT_UP_S, PATIENCE_S, 0.5, seen=flow.stalest_s)
            killed = _kill(project, service, flow, echo)
            found.append(killed)
            if service in WORKERS:
                what = f"fresh thresholds after kill -9 of {service}"
                goals.at_most(what, killed["fresh_s"], fresh_s)
            assert load.running(), "an executor has ended"
            time.sleep(PAUSE_S)
    return found


def kill_idle(project: Project, folder: Path, goals: Goals, echo: Echo) -> dict[str, Any]:
    """Kill the threshold worker while it has next to nothing to do; return how long it took."""
    with (
        Trickle(project.addresses.kafka, folder),
        Flow(project.addresses.redis, IDLE_TENANT) as flow,
    ):
        until(lambda: flow.fresh(0), PATIENCE_S)
        killed = _kill(project, "thresholds", flow, echo)
    goals.at_most("fresh thresholds after kill -9 without load", killed["fresh_s"], FRESH_IDLE_S)
    return killed


def _kill(project: Project, service: str, flow: Flow, echo: Echo) -> dict[str, Any]:
    """Kill one container; return when, in seconds, thresholds were fresh and what came before."""
    before = project.container(service)["State"]["StartedAt"]
    since = project.kill(service)
    until(
        lambda: flow.fresh(int(since * 1000)), PATIENCE_S, seen=lambda: project.log(service, since)
    )
    fresh = round(time.time() - since, 1)
    project.wait()
    until(lambda: restarted(project, service, before), PATIENCE_S, 0.5)
    echo(f"kill -9 of {service}: thresholds fresh after {fresh} s")
    log = project.log(service, since)
    container = started_after(project.container(service)["State"]["StartedAt"], since)
    killed = {
        "killed": service, "fresh_s": fresh, "after": {"container": container, **stages(log, since)}
    }  # fmt: skip
    warned = complaints(log, since) if service in WORKERS else []
    return killed | ({"warned": warned} if warned else {})


def restarted(project: Project, service: str, before: str) -> bool:
    """Return whether a service's container runs, and was not started at `before`."""
    state = project.container(service)["State"]
    return bool(state["Running"]) and state["StartedAt"] != before


def stop_workers(project: Project, goals: Goals, echo: Echo) -> dict[str, float]:
    """Stop the process of each worker, as a hang would; return when each was restarted, in s."""
    before, begun, found = {}, {}, dict[str, float]()
    for service in WORKERS:
        script = (
            "import os, signal\n"
            f"with open('/data/workers/{service}-0/worker.lock') as lock: pid = int(lock.read())\n"
            "os.kill(pid, signal.SIGSTOP)"
        )
        before[service] = project.container(service)["State"]["StartedAt"]
        begun[service] = time.monotonic()
        project.exec(service, "python", "-c", script)

    def all_back() -> bool:
        for service in WORKERS:
            if service not in found and restarted(project, service, before[service]):
                found[service] = round(time.monotonic() - begun[service], 1)
        return len(found) == len(WORKERS)

    until(all_back, PATIENCE_S, 0.5, seen=lambda: found)
    for service, seconds in found.items():
        echo(f"{service}, whose process was stopped, was restarted after {seconds} s")
        goals.at_most(f"the restart of {service}, which hung,", seconds, RESTARTED_S)
    return found
