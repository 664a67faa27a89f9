"""The containers of an earlier version replaced by those of this one, one by one, under load.

In the order of docs/how-to/upgrade.md: jobs, workers, then all that differs. Executors on the host
are replaced meanwhile.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from tests.chaos.earlier import checkout
from tests.chaos.flow import Flow
from tests.chaos.world import code_of
from tests.compose.engine import Project
from tests.compose.faults import Echo
from tests.compose.goals import Goals
from tests.compose.load import EXECUTORS, TENANT, Load
from tests.compose.steps import PATIENCE_S, SERVICES, WORKERS, all_healthy, timed, verified
from tests.patience import until

JOBS: Final = ("migrations", "topics")
MIXED_S: Final = 5.0
"""How long each mixture of versions runs."""


def upgrade(
    project: Project, load: Load, folder: Path, before: str, events_per_s: float,
    goals: Goals, echo: Echo,
) -> dict[str, Any]:  # fmt: skip
    """Replace each container of the version `before`, a commit; return what became of the events.

    Raises `EngineFailed` and `AssertionError`.
    """
    tree = checkout(before, folder / "before")
    earlier = project.of(tree)
    found: dict[str, Any] = {"before": before}
    project.compose("build")  # both before the load; the second one has the name
    found["build_before_s"] = timed(lambda: earlier.compose("build"))
    running = [name for name in WORKERS if name in earlier.compose("config", "--services").split()]
    found["healthy_s"] = timed(lambda: earlier.compose("up", "-d", "--wait", *SERVICES, *running))
    echo(f"the version before is healthy after {found['healthy_s']} s")
    images = {name: project.container(name)["Image"] for name in running}
    load.start(events_per_s, code_of(tree))
    with Flow(project.addresses.redis, TENANT) as flow:
        until(lambda: flow.fresh(0), PATIENCE_S)
        time.sleep(MIXED_S)
        project.compose("build")
        flow.take_worst_s()
        found["replaced"] = _replace_all(project, load, flow, echo)
        since = time.time_ns() // 1_000_000
        until(lambda: flow.fresh(since), PATIENCE_S)
    for name, image in images.items():
        assert project.container(name)["Image"] != image, f"{name}: {before} has the same image"
    load.stop()
    checked = load.check()
    goals.exact(checked)
    all_healthy(project)
    restarts = sum(project.container(name)["RestartCount"] for name in WORKERS)
    goals.none("containers of this version ended by themselves", restarts)
    return found | {
        "events": checked.logged,
        "lost": checked.lost,
        "double": checked.double,
        "differing": checked.differing,
        "stalest_threshold_s": max(each["stalest_threshold_s"] for each in found["replaced"]),
        "workers_restarted": restarts,
        "verify": verified(project, goals),
    }


def _replace_all(project: Project, load: Load, flow: Flow, echo: Echo) -> list[dict[str, Any]]:
    """Replace jobs, workers, executors; return for each how long it took, and thresholds' age."""
    found = []

    def note(name: str, seconds: float) -> None:
        time.sleep(MIXED_S)
        assert load.running(), "an executor has ended"
        stalest = round(flow.take_worst_s(), 1)
        echo(f"{name}: replaced in {seconds} s, thresholds at most {stalest} s old")
        found.append({"replaced": name, "seconds": seconds, "stalest_threshold_s": stalest})

    for job in JOBS:
        note(job, timed(lambda: project.compose("run", "--rm", "--no-deps", job)))  # noqa: B023
    for number, worker in enumerate(WORKERS):
        up = ("up", "-d", "--no-deps", "--wait", worker)
        note(worker, timed(lambda: project.compose(*up)))  # noqa: B023
        if number < EXECUTORS:
            load.replace(number)
    rest = ("up", "-d", "--wait", *SERVICES, *WORKERS)  # services of others whose lines differ
    note("what else differs", timed(lambda: project.compose(*rest)))
    return found
