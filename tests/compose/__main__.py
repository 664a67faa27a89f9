"""`python -m tests.compose`: builds the image, runs docker-compose.yml, and breaks it on purpose.

Needs Docker with a daemon on this machine. Prints what it measured as JSON. Exit code 1: a goal was
missed, and one line for each says which. Without an engine it prints one line that begins with
`skipped`, and ends with 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.chaos.earlier import commit_of
from tests.compose import faults, steps
from tests.compose.engine import Project, missing
from tests.compose.goals import FRESH_S, WHOLE_S, Goals
from tests.compose.load import Load
from tests.compose.upgrade import upgrade


def main() -> int:
    chosen = arguments()
    if lacks := missing():
        print(f"skipped: make test-compose needs a container engine: {lacks}")
        return 0
    begun, goals, project = time.monotonic(), Goals(), Project()
    with tempfile.TemporaryDirectory(prefix="headstart-compose-") as folder:
        load = Load(project.addresses, Path(folder))
        project.down()  # what an interrupted run has left
        try:
            found = measure(project, load, Path(folder), chosen, goals)
        finally:
            load.close()
            project.down()
    seconds = round(time.monotonic() - begun)
    goals.at_most("the whole run", seconds, chosen.whole_s)
    print(json.dumps({**found, "seconds": seconds, "missed": goals.missed}, indent=2))
    for each in goals.missed:
        print(f"missed: {each}", file=sys.stderr)
    return int(bool(goals.missed))


def arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="python -m tests.compose", description=__doc__)
    parser.add_argument("--events-per-s", type=float, default=1_000.0)
    parser.add_argument(
        "--fresh-s", type=float, default=FRESH_S,
        help=f"most after kill -9 of a worker under load [default: {FRESH_S:.0f}]",
    )  # fmt: skip
    parser.add_argument(
        "--whole-s", type=float, default=WHOLE_S,
        help=f"most that all of it may take [default: {WHOLE_S:.0f}]",
    )  # fmt: skip
    parser.add_argument(
        "--upgrade-from", metavar="COMMIT", help="only replace the containers of an earlier version"
    )
    chosen = parser.parse_args()
    if chosen.upgrade_from and not (found := commit_of(chosen.upgrade_from)):
        parser.error(f"there is no commit {chosen.upgrade_from}")
    elif chosen.upgrade_from:
        chosen.upgrade_from = found
    return chosen


def measure(
    project: Project, load: Load, folder: Path, chosen: argparse.Namespace, goals: Goals
) -> dict[str, Any]:
    """Run every step; return the figures. Raises `AssertionError`."""
    if before := chosen.upgrade_from:
        return upgrade(project, load, folder, before, chosen.events_per_s, goals, echo)
    found: dict[str, Any] = {}

    def note(name: str, value: Any) -> None:
        found[name] = value
        echo(f"{name}: {value}")

    note("build_s", steps.timed(lambda: project.compose("build")))
    up = ("up", "-d", "--wait", *steps.SERVICES, *steps.WORKERS)
    note("healthy_s", steps.timed(lambda: project.compose(*up)))
    steps.compiled(project)
    note("demo_s", steps.timed(lambda: steps.demo(project, folder)))  # waits until all is taken in
    load.start(chosen.events_per_s)
    note("faults", faults.kill_each(project, load, chosen.fresh_s, goals, echo))
    note("stuck_restarted_s", faults.stop_workers(project, goals, echo))
    load.stop()
    checked = load.check()
    note("checked", asdict(checked))
    goals.exact(checked)
    steps.all_healthy(project)
    note("idle", faults.kill_idle(project, folder, goals, echo))
    note("memory", steps.confined(project))
    note("foreign_folder", steps.foreign_folder(folder))
    note("restart", steps.same_after_restart(project, load, checked, goals))
    return found


def echo(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
